// Addresses from people and peers: any text is an address or an error; without credentials, only
// loopback is an address (SE-1).
#include <algorithm>

#include "absl/strings/match.h"

#include "gangway/base/check.h"
#include "gangway/base/fuzz.h"
#include "gangway/transport/grpc/address.h"

namespace gangway::fuzz {

std::vector<std::string> Seeds() {
  return {"127.0.0.1:8470", "[::1]:0",       "localhost:65535", "unix:/run/gangway",
          "10.0.0.1:80",    "example.org:1", "[2001:db8::1]:2"};
}

}  // namespace gangway::fuzz

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  namespace transport = gangway::transport;
  const std::string text(gangway::fuzz::View(data, size));
  auto secured = transport::ParseAddress(text, transport::Security::kCredentials);
  auto plain = transport::ParseAddress(text, transport::Security::kPlain);
  if (!plain.ok()) return 0;
  GANGWAY_CHECK(secured.ok(), "credentials exclude no address");
  GANGWAY_CHECK(absl::StartsWith(plain->host, "127.") || absl::StartsWith(plain->host, "["),
                "SE-1: loopback");
  GANGWAY_CHECK(plain->port >= 0 && plain->port <= 65535, "a port");
  return 0;
}
