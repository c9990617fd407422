// The formats of JSON schema as regular expressions.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "slm/core/macros.hpp"

namespace slm { inline namespace v0_1 { namespace grammar {

/// An expression that matches the whole text; none for an unknown name.
inline std::optional<std::string> format_pattern(std::string_view name) {
  static const std::string date =
      "[0-9]{4}-((0[13578]|1[02])-(0[1-9]|[12][0-9]|3[01])|(0[469]|11)-(0[1-9]|[12][0-9]|30)|02-(0[1-9]|[12][0-9]))";
  static const std::string time =
      "([01][0-9]|2[0-3]):[0-5][0-9]:([0-5][0-9]|60)(\\.[0-9]+)?([zZ]|[+-]([01][0-9]|2[0-3]):[0-5][0-9])";
  static const std::string byte = "(25[0-5]|2[0-4][0-9]|1[0-9][0-9]|[1-9]?[0-9])";
  static const std::string ipv4 = byte + "(\\." + byte + "){3}";
  static const std::string label = "[A-Za-z0-9]([A-Za-z0-9-]{0,61}[A-Za-z0-9])?";
  static const std::string hostname = label + "(\\." + label + ")*";
  if (name == "date") return date;
  if (name == "time") return time;
  if (name == "date-time") return date + "[tT]" + time;
  if (name == "duration") {
    const std::string clock = "T([0-9]+H([0-9]+M([0-9]+S)?)?|[0-9]+M([0-9]+S)?|[0-9]+S)";
    const std::string calendar = "([0-9]+Y([0-9]+M([0-9]+D)?)?|[0-9]+M([0-9]+D)?|[0-9]+D)";
    return "P([0-9]+W|" + calendar + "(" + clock + ")?|" + clock + ")";
  }
  if (name == "hostname") return hostname;
  if (name == "ipv4") return ipv4;
  if (name == "uuid") return "[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}";
  if (name == "ipv6" || name == "uri" || name == "email") {
    // Groups before and behind "::", of at most seven; the last two may be an IPv4 address.
    const std::string group = "[0-9a-fA-F]{1,4}";
    std::string ipv6 = "((" + group + ":){7}" + group + "|(" + group + ":){6}" + ipv4 + "|::|::" + ipv4;
    for (int before = 0; before <= 7; ++before) {
      const std::string left = before == 0 ? ":" : group + "(:" + group + "){" + std::to_string(before - 1) + "}";
      const int behind = 7 - before;
      if (before > 0) ipv6 += "|" + left + "::";
      if (behind > 0) ipv6 += "|" + left + ":(:" + group + "){1," + std::to_string(behind) + "}";
      if (behind > 1)
        ipv6 += "|" + left + (before == 0 ? ":(" : "::(") + group + ":){0," + std::to_string(behind - 2) + "}" + ipv4;
    }
    ipv6 += ")";
    if (name == "ipv6") return ipv6;
    if (name == "email") {
      const std::string part = "[A-Za-z0-9]([A-Za-z0-9-]*[A-Za-z0-9])?", domain = part + "(\\." + part + ")*";
      const std::string atom = "[A-Za-z0-9!#$%&'*+/=?^_`{|}~-]+";
      return atom + "(\\." + atom + ")*@(" + domain + "|\\[(" + ipv4 + "|IPv6:" + ipv6 + ")\\])";
    }
    const std::string escape = "%[0-9A-Fa-f]{2}";
    const std::string plain = "[A-Za-z0-9._~!$&'()*+,;=-]", in_path = "(" + plain + "|[:@]|" + escape + ")";
    const std::string authority =
        "((" + plain + "|:|" + escape + ")*@)?(\\[" + ipv6 + "\\]|(" + plain + "|" + escape + ")*)(:[0-9]*)?";
    const std::string path = "(//" + authority + "(/" + in_path + "*)*|/(" + in_path + "+(/" + in_path + "*)*)?|" +
                             in_path + "+(/" + in_path + "*)*)?";
    return "[A-Za-z][A-Za-z0-9+.-]*:" + path + "(\\?(" + in_path + "|[/?])*)?(#(" + in_path + "|[/?])*)?";
  }
  return std::nullopt;
}

}}}
