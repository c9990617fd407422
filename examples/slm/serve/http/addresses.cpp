#include "http/addresses.hpp"

#include <algorithm>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <string_view>

#include "http/ascii.hpp"
#include "slm/core/error.hpp"

namespace serve {
namespace {

namespace ip = boost::asio::ip;

bool is_localhost(std::string_view host) {
  if (host.ends_with('.')) host.remove_suffix(1);
  return lower(host) == "localhost";
}

bool is_loopback(const ip::address& address) {
  if (address.is_v6() && address.to_v6().is_v4_mapped()) {
    return ip::make_address_v4(ip::v4_mapped, address.to_v6()).is_loopback();
  }
  return address.is_loopback();
}

[[noreturn]] void refuse(const std::string& host) {
  throw slm::Error("serve.bad-host", slm::text("Expected an address of the host ", slm::quote(host)),
                   "Use an address of this machine, such as 127.0.0.1");
}

/// Of hosts with a comma between them.
std::vector<std::string> addresses_of_several(const std::string& hosts, std::size_t comma) {
  const std::string first = hosts.substr(0, comma), others = hosts.substr(comma + 1);
  if (first.empty() || others.empty()) refuse(hosts);
  std::vector<std::string> addresses = addresses_of(first);
  for (const std::string& address : addresses_of(others)) {
    if (std::find(addresses.begin(), addresses.end(), address) == addresses.end()) addresses.push_back(address);
  }
  return addresses;
}

}  // namespace

std::string without_brackets(const std::string& host) {
  const bool bracketed = host.size() > 2 && host.front() == '[' && host.back() == ']';
  return bracketed ? host.substr(1, host.size() - 2) : host;
}

std::vector<std::string> addresses_of(const std::string& host) {
  if (const std::size_t comma = host.find(','); comma != host.npos) return addresses_of_several(host, comma);
  if (is_localhost(host)) return {"127.0.0.1", "::1"};
  boost::system::error_code error;
  boost::asio::io_context context;
  const auto found = ip::tcp::resolver(context).resolve(without_brackets(host), "0", ip::tcp::resolver::passive, error);
  std::vector<std::string> addresses;
  for (const auto& entry : found) {
    const std::string address = entry.endpoint().address().to_string();
    if (std::find(addresses.begin(), addresses.end(), address) == addresses.end()) addresses.push_back(address);
  }
  if (error || addresses.empty()) refuse(host);
  return addresses;
}

bool is_loopback(const std::string& host) {
  const auto addresses = addresses_of(host);
  return std::all_of(addresses.begin(), addresses.end(),
                     [](const std::string& address) { return is_loopback(ip::make_address(address)); });
}

}  // namespace serve
