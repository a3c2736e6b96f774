// Implementation of access.h.
#include "gangway/cli/access.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <fstream>
#include <sstream>

#include "absl/strings/str_cat.h"

#include "gangway/base/file_descriptor.h"
#include "gangway/base/status.h"
#include "gangway/cli/revocations.h"
#include "gangway/transport/by_address.h"
#include "gangway/transport/handshake/cluster_token.h"

namespace gangway::cli {
namespace {

absl::Status CannotWrite(const std::string& path) {
  return absl::InternalError(absl::StrCat("cannot write ", path, ": ", std::strerror(errno)));
}

std::string TokenPath(const AccessFiles& files) {
  return files.token_file.empty() ? absl::StrCat(files.tls, "/", TokenFile(files.role))
                                  : files.token_file;
}

}  // namespace

absl::StatusOr<std::string> ReadPrivateFile(const std::string& path) {
  struct stat about;
  std::ifstream file(path);
  if (stat(path.c_str(), &about) != 0 || !file) {
    return absl::NotFoundError(absl::StrCat("cannot read ", path, ": ", std::strerror(errno)));
  }
  if ((about.st_mode & 077) != 0) {
    return absl::PermissionDeniedError(
        absl::StrCat(path, " is a secret, but other users can read it: chmod 600 ", path,
                     ", and replace it if another user may have read it"));
  }
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

absl::Status WritePrivateFile(const std::string& path, const std::string& text) {
  const std::string fresh = path + ".new";
  unlink(fresh.c_str());  // a writer that died may have left it
  FileDescriptor file(open(fresh.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600));
  if (file.get() < 0) return CannotWrite(fresh);
  size_t offset = 0;
  while (offset < text.size()) {
    const ssize_t written = write(file.get(), text.data() + offset, text.size() - offset);
    if (written < 0 && errno != EINTR) return CannotWrite(fresh);
    if (written > 0) offset += static_cast<size_t>(written);
  }
  if (rename(fresh.c_str(), path.c_str()) != 0) return CannotWrite(path);
  return absl::OkStatus();
}

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

absl::StatusOr<std::unique_ptr<transport::Transport>> OpenTransport(
    const std::string& tls, std::chrono::milliseconds silence_max) {
  if (tls.empty()) return transport::NewTransportByAddress({.silence_max = silence_max});
  grpc::SslCredentialsOptions channel;
  for (auto [name, text] : {std::pair{"ca.pem", &channel.pem_root_certs},
                            {"cert.pem", &channel.pem_cert_chain},
                            {"key.pem", &channel.pem_private_key}}) {
    auto read = ReadPrivateFile(absl::StrCat(tls, "/", name));
    if (!read.ok()) {
      return absl::Status(read.status().code(),
                          absl::StrCat(read.status().message(),
                                       "; --tls needs a folder that `gangway certs` made"));
    }
    *text = *std::move(read);
  }
  grpc::SslServerCredentialsOptions server(
      GRPC_SSL_REQUEST_AND_REQUIRE_CLIENT_CERTIFICATE_AND_VERIFY);
  server.pem_root_certs = channel.pem_root_certs;
  server.pem_key_cert_pairs = {{channel.pem_private_key, channel.pem_cert_chain}};
  return transport::NewTransportByAddress({.server_credentials = grpc::SslServerCredentials(server),
                                           .channel_credentials = grpc::SslCredentials(channel),
                                           .peers = std::make_shared<Revocations>(tls),
                                           .silence_max = silence_max});
}

absl::Status ExplainConnection(const absl::Status& status, const std::string& address,
                               const std::string& tls) {
  if (!absl::IsUnavailable(status) || tls.empty()) return status;
  return absl::UnavailableError(absl::StrCat(
      "cannot connect over TLS to ", address, " (", std::string(status.message()),
      "): if a controller runs there, the certificate in ", tls,
      " is not from that cluster's CA, has expired, or does not name this host: use the folder "
      "that `gangway certs` made for that cluster, with all hosts in --hosts"));
}

}  // namespace gangway::cli
