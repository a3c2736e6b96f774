// Implementation of access.h.
#include "gangway/cli/access.h"

#include <unistd.h>

#include <utility>

#include "absl/strings/str_cat.h"

#include "gangway/base/status.h"
#include "gangway/transport/handshake/cluster_token.h"

namespace gangway::cli {
namespace {

std::string TokenPath(const AccessFiles& files) {
  return files.token_file.empty() ? absl::StrCat(files.tls, "/", TokenFile(files.role))
                                  : files.token_file;
}

}  // namespace

std::string TokenFile(wire::Role role) {
  return role == wire::ROLE_CLIENT ? "token" : transport::RoleName(role) + ".token";
}

absl::Status EnsureTokens(const std::string& folder) {
  const std::string path = absl::StrCat(folder, "/", kSecretFile);
  if (access(path.c_str(), F_OK) != 0)
    GANGWAY_RETURN_IF_ERROR(WritePrivateFile(path, transport::NewClusterToken() + "\n"));
  GANGWAY_ASSIGN_OR_RETURN(auto access, ReadAccess({.token_file = path}));
  GANGWAY_RETURN_IF_ERROR(WritePrivateFile(absl::StrCat(folder, "/", kVerifiersFile),
                                           transport::Verifiers::Of(access.token).ToText()));
  // The clients' last: once it exists, all of them do.
  for (auto role = transport::kTokenRoles.rbegin(); role != transport::kTokenRoles.rend(); ++role) {
    GANGWAY_RETURN_IF_ERROR(WritePrivateFile(absl::StrCat(folder, "/", TokenFile(*role)),
                                             transport::RoleToken(access.token, *role) + "\n"));
  }
  return absl::OkStatus();
}

absl::StatusOr<transport::Verifiers> ReadVerifiers(const AccessFiles& files) {
  const std::string token = TokenPath(files);
  const std::string path = absl::StrCat(token.substr(0, token.rfind('/') + 1), kVerifiersFile);
  GANGWAY_ASSIGN_OR_RETURN(auto text, ReadPrivateFile(path));
  auto verifiers = transport::Verifiers::FromText(text);
  if (verifiers.ok()) return verifiers;
  return absl::FailedPreconditionError(
      absl::StrCat(path, ": ", std::string(verifiers.status().message()),
                   ": copy the file again from the cluster's folder, or restart the cluster"));
}

absl::StatusOr<Access> ReadAccess(const AccessFiles& files) {
  Access access{.tls = files.tls};
  const std::string path = TokenPath(files);
  auto token = ReadPrivateFile(path);
  if (!token.ok()) {
    return absl::Status(token.status().code(),
                        absl::StrCat(token.status().message(),
                                     "; this file holds a token of the cluster: give the cluster's "
                                     "own state folder (--state-dir) or TLS folder (--tls)"));
  }
  access.token = *std::move(token);
  while (!access.token.empty() && access.token.back() == '\n') access.token.pop_back();
  if (access.token.empty()) {
    return absl::FailedPreconditionError(absl::StrCat(
        path,
        " is empty, but should hold a token of the cluster: delete it and restart the cluster, "
        "or copy it from the cluster's host"));
  }
  return access;
}

}  // namespace gangway::cli
