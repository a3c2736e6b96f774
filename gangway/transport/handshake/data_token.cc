// Implementation of data_token.h.
#include "gangway/transport/handshake/data_token.h"

#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>

#include "absl/strings/str_cat.h"

#include "gangway/base/check.h"
#include "gangway/base/random.h"

namespace gangway::transport {
namespace {

constexpr int kKeyBytes = 32;

}  // namespace

std::string NewDataKey() { return RandomBytes(kKeyBytes); }

std::string DataToken(std::string_view key, SessionId session) {
  const std::string text = absl::StrCat("gangway data stream of session ", session);
  unsigned char token[EVP_MAX_MD_SIZE];
  unsigned int size = 0;
  const void* made =
      HMAC(EVP_sha256(), key.data(), static_cast<int>(key.size()),
           reinterpret_cast<const unsigned char*>(text.data()), text.size(), token, &size);
  GANGWAY_CHECK(made != nullptr, "no HMAC-SHA-256");
  return {reinterpret_cast<const char*>(token), size};
}

bool IsDataToken(std::string_view key, SessionId session, std::string_view token) {
  if (key.empty()) return false;
  const std::string right = DataToken(key, session);
  return token.size() == right.size() &&
         CRYPTO_memcmp(token.data(), right.data(), right.size()) == 0;
}

}  // namespace gangway::transport
