#if defined(_WIN32)

#define WIN32_LEAN_AND_MEAN
#define NOMINMAX
#define PSAPI_VERSION 2
#include <windows.h>
// After windows.h
#include <fcntl.h>
#include <io.h>
#include <psapi.h>
#include <shellapi.h>

#include <atomic>

#include "slm/core/error.hpp"
#include "slm/core/os/path.hpp"
#include "tools/cli/interrupts.hpp"
#include "tools/cli/system.hpp"

namespace cli {

std::vector<std::string> begin_process(int, char**) {
  for (std::FILE* const stream : {stdin, stdout, stderr}) ::_setmode(::_fileno(stream), _O_BINARY);
  ::SetConsoleOutputCP(CP_UTF8);
  int count = 0;
  wchar_t** const wide = ::CommandLineToArgvW(::GetCommandLineW(), &count);
  std::vector<std::string> arguments;
  for (int i = 0; i < count; ++i) arguments.push_back(slm::detail::utf8_text(wide[i]));
  ::LocalFree(wide);
  return arguments;
}

bool is_terminal(std::FILE* stream) { return ::_isatty(::_fileno(stream)) != 0; }

std::FILE* open_to_read(const std::filesystem::path& path) { return ::_wfopen(path.c_str(), L"rb"); }

std::filesystem::path program_path() {
  std::wstring name(32768, L'\0');  // the longest path
  name.resize(::GetModuleFileNameW(nullptr, name.data(), static_cast<DWORD>(name.size())));
  return name;
}

std::string host_name() {
  wchar_t name[MAX_COMPUTERNAME_LENGTH + 1];
  DWORD size = MAX_COMPUTERNAME_LENGTH + 1;
  return ::GetComputerNameW(name, &size) != 0 ? slm::detail::utf8_text({name, size}) : "";
}

std::size_t anonymous_bytes() {
  PROCESS_MEMORY_COUNTERS counters{};
  return ::GetProcessMemoryInfo(::GetCurrentProcess(), &counters, sizeof counters) != 0 ? counters.PagefileUsage : 0;
}

namespace {

std::atomic<HANDLE> ending{nullptr};  // an event: the program is asked to end
std::atomic<bool> counting = false;   // Ctrl-C is counted

BOOL WINAPI on_control(DWORD kind) {
  if (counting && kind == CTRL_C_EVENT) {
    interrupts = interrupts + 1;
    return interrupts < 3 ? TRUE : FALSE;  // after two ignored interrupts, the third ends the program
  }
  const HANDLE event = ending;
  if (event == nullptr) return FALSE;
  ::SetEvent(event);
  // The process of a closed console ends when this handler returns.
  if (kind != CTRL_C_EVENT && kind != CTRL_BREAK_EVENT) ::Sleep(INFINITE);
  return TRUE;
}

}  // namespace

class EndSignals::State {};

EndSignals::EndSignals() {
  ending = ::CreateEventW(nullptr, FALSE, FALSE, nullptr);
  ::SetConsoleCtrlHandler(nullptr, FALSE);  // a parent may have had Ctrl-C ignored
  ::SetConsoleCtrlHandler(on_control, TRUE);
  std::signal(SIGTERM, [](int) { ::SetEvent(ending); });  // the program itself raises it
}
EndSignals::~EndSignals() {
  std::signal(SIGTERM, SIG_DFL);
  ::SetConsoleCtrlHandler(on_control, FALSE);
  ::CloseHandle(ending.exchange(nullptr));
}
void EndSignals::wait() const { ::WaitForSingleObject(ending, INFINITE); }
bool EndSignals::comes_within(std::chrono::milliseconds time) const {
  return ::WaitForSingleObject(ending, static_cast<DWORD>(time.count())) == WAIT_OBJECT_0;
}

volatile std::sig_atomic_t interrupts = 0;

class InterruptGuard::State {};

InterruptGuard::InterruptGuard() {
  interrupts = 0;
  counting = true;
  ::SetConsoleCtrlHandler(on_control, TRUE);
}
InterruptGuard::~InterruptGuard() {
  ::SetConsoleCtrlHandler(on_control, FALSE);
  counting = false;
}
void InterruptGuard::drain() const {}

InterruptGuard::Input InterruptGuard::read(std::string& held) const {
  const HANDLE input = ::GetStdHandle(STD_INPUT_HANDLE);
  DWORD mode = 0, count = 0;
  BOOL read = FALSE;
  if (::GetConsoleMode(input, &mode) != 0) {  // Ctrl-C ends a read of the console, without characters
    wchar_t piece[1 << 11];
    read = ::ReadConsoleW(input, piece, sizeof piece / sizeof *piece, &count, nullptr);
    if (count > 0 && piece[0] == 0x1a) return Input::end;  // Ctrl-Z
    if (read != 0) held += slm::detail::utf8_text({piece, count});
  } else {
    char piece[1 << 12];
    read = ::ReadFile(input, piece, sizeof piece, &count, nullptr);
    if (read == 0 && ::GetLastError() == ERROR_BROKEN_PIPE) return Input::end;
    if (read != 0) held.append(piece, count);
  }
  if (interrupts != 0) return Input::interrupt;
  if (read == 0) {
    throw slm::Error("cli.input-failed", "standard input could not be read", "Pipe a text or name a file");
  }
  return count == 0 ? Input::end : Input::bytes;
}

}  // namespace cli

#endif
