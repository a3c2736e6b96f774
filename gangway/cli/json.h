// JSON, by nlohmann's library; members keep the order in which they were added.
#ifndef GANGWAY_CLI_JSON_H_
#define GANGWAY_CLI_JSON_H_

#include <string>

#include <nlohmann/json.hpp>

namespace gangway::cli {

using Json = nlohmann::ordered_json;

// On one line. Bytes that are not UTF-8 are replaced.
inline std::string ToText(const Json& json) {
  return json.dump(/*indent=*/-1, ' ', /*ensure_ascii=*/false, Json::error_handler_t::replace);
}

}  // namespace gangway::cli

#endif  // GANGWAY_CLI_JSON_H_
