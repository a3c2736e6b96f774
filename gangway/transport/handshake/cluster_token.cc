// Implementation of cluster_token.h.
#include "gangway/transport/handshake/cluster_token.h"

#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>

#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"

#include "gangway/base/check.h"
#include "gangway/transport/handshake/data_token.h"

namespace gangway::transport {
namespace {

constexpr char kPurpose[] = "gangway token of role ";
constexpr size_t kDigestDigits = 64;

std::string Digest(std::string_view token) {
  unsigned char bytes[EVP_MAX_MD_SIZE];
  unsigned int size = 0;
  GANGWAY_CHECK(EVP_Digest(token.data(), token.size(), bytes, &size, EVP_sha256(), nullptr) == 1,
                "no SHA-256");
  return absl::BytesToHexString({reinterpret_cast<const char*>(bytes), size});
}

bool Same(std::string_view a, std::string_view b) {
  return a.size() == b.size() && CRYPTO_memcmp(a.data(), b.data(), a.size()) == 0;
}

}  // namespace

std::string RoleName(wire::Role role) {
  switch (role) {
    case wire::ROLE_CLIENT:
      return "client";
    case wire::ROLE_WORKER:
      return "worker";
    case wire::ROLE_COMPILER:
      return "compiler";
    case wire::ROLE_SCHEDULER:
      return "scheduler";
    case wire::ROLE_TOOL:
      return "tool";
    default:
      return absl::StrCat("role ", static_cast<int>(role));
  }
}

std::string NewClusterToken() { return absl::BytesToHexString(NewDataKey()); }

std::string RoleToken(std::string_view secret, wire::Role role) {
  const std::string text = absl::StrCat(kPurpose, RoleName(role));
  unsigned char token[EVP_MAX_MD_SIZE];
  unsigned int size = 0;
  const auto* made =
      HMAC(EVP_sha256(), secret.data(), static_cast<int>(secret.size()),
           reinterpret_cast<const unsigned char*>(text.data()), text.size(), token, &size);
  GANGWAY_CHECK(made != nullptr, "no HMAC-SHA-256");
  return absl::BytesToHexString({reinterpret_cast<const char*>(token), size});
}

Verifiers Verifiers::Of(std::string_view secret) {
  Verifiers made;
  for (wire::Role role : kTokenRoles) made.digests_[role] = Digest(RoleToken(secret, role));
  return made;
}

Verifiers Verifiers::Same(std::string_view token) {
  Verifiers made;
  if (token.empty()) return made;
  for (wire::Role role : kTokenRoles) made.digests_[role] = Digest(token);
  return made;
}

absl::StatusOr<Verifiers> Verifiers::FromText(std::string_view text) {
  Verifiers made;
  const absl::string_view all(text.data(), text.size());
  for (absl::string_view line : absl::StrSplit(all, '\n', absl::SkipWhitespace())) {
    const std::vector<std::string> words = absl::StrSplit(line, ' ', absl::SkipWhitespace());
    bool known = false;
    for (wire::Role role : kTokenRoles) {
      if (words.size() != 2 || words[0] != RoleName(role)) continue;
      made.digests_[role] = words[1];
      known = words[1].size() == kDigestDigits;
    }
    if (!known) {
      return absl::InvalidArgumentError(
          absl::StrCat("\"", line.substr(0, 100), "\" is not a role and a digest of its token"));
    }
  }
  return made;
}

std::string Verifiers::ToText() const {
  std::string text;
  for (const auto& [role, digest] : digests_)
    absl::StrAppend(&text, RoleName(role), " ", digest, "\n");
  return text;
}

absl::Status Verifiers::Check(wire::Role role, std::string_view presented,
                              std::string_view who) const {
  const std::string digest = Digest(presented);
  if (const auto own = digests_.find(role);
      own != digests_.end() && transport::Same(own->second, digest))
    return absl::OkStatus();
  for (const auto& [other, expected] : digests_) {
    if (!transport::Same(expected, digest)) continue;
    if (role == wire::ROLE_PROBE) return absl::OkStatus();
    return absl::PermissionDeniedError(absl::StrCat(
        std::string(who), " presented the token of role ", RoleName(other),
        ", which does not open role ", RoleName(role),
        ": start it with that role's own token, from the cluster's state folder or ",
        "from a folder that `gangway certs DIR --add NAME --role ", RoleName(role), "` made"));
  }
  return absl::UnauthenticatedError(absl::StrCat(
      std::string(who), presented.empty() ? " presented no token" : " presented a wrong token",
      ": the cluster accepts its own tokens only. They are files in the cluster's state "
      "folder (--state-dir or GANGWAY_STATE_DIR, as given to `gangway up`) and in the folder that "
      "`gangway certs` made (--tls): use the same folder as the cluster."));
}

}  // namespace gangway::transport
