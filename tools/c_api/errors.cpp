// Errors of the C interface, its version, and slm_free.
#include <algorithm>
#include <cstdlib>
#include <exception>
#include <new>
#include <stdexcept>

#include "handles.hpp"
#include "slm/core/macros.hpp"

namespace c_api {

namespace {

/// The last error of a thread. Recording one allocates nothing.
struct LastError {
  char id[64] = "";
  char message[2048] = "";
};

thread_local LastError last_error;

template <std::size_t Size>
void store(std::string_view text, char (&to)[Size]) {
  const std::size_t length = std::min(text.size(), Size - 1);
  std::copy_n(text.data(), length, to);
  to[length] = '\0';
}

slm_status record(slm_status status, std::string_view id, std::string_view message) {
  store(id, last_error.id);
  store(message, last_error.message);
  return status;
}

}  // namespace

slm_status record_exception() noexcept {
  try {
    throw;
  } catch (const slm::Error& error) {
    const bool is_misuse = error.id().starts_with("c.") && error.id() != "c.cancelled";
    return record(is_misuse ? SLM_ERROR_ARGUMENT : SLM_ERROR_FAILED, error.id(), error.what());
  } catch (const std::bad_alloc&) {
    return record(SLM_ERROR_MEMORY, "c.out-of-memory", "An allocation failed. Free memory, or load a smaller model");
  } catch (const std::length_error&) {
    return record(SLM_ERROR_MEMORY, "c.out-of-memory", "A size exceeds what memory can hold. Check the sizes");
  } catch (const std::exception& error) {
    return record(SLM_ERROR_UNEXPECTED, "c.unexpected", error.what());
  } catch (...) {
    return record(SLM_ERROR_UNEXPECTED, "c.unexpected", "An exception of an unknown type was thrown");
  }
}

}  // namespace c_api

int32_t slm_abi(void) { return SLM_ABI; }

const char* slm_version(void) {
#define SLM_TEXT(number) #number
#define SLM_VERSION_TEXT(major, minor, patch) SLM_TEXT(major) "." SLM_TEXT(minor) "." SLM_TEXT(patch)
  return SLM_VERSION_TEXT(SLM_VERSION_MAJOR, SLM_VERSION_MINOR, SLM_VERSION_PATCH);
}

const char* slm_error_id(void) { return c_api::last_error.id; }

const char* slm_error_message(void) { return c_api::last_error.message; }

void slm_free(void* array) { std::free(array); }
