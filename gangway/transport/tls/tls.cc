// Implementation of tls.h.
#include "gangway/transport/tls/tls.h"

#include <cstdlib>
#include <mutex>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"

#include "gangway/base/private_file.h"
#include "gangway/transport/by_address.h"
#include "gangway/transport/tls/any_host.h"
#include "gangway/transport/tls/revocations.h"

namespace gangway::transport {
namespace {

// Has gRPC resolve names as the system does (getaddrinfo, nsswitch.conf). Its own resolver asks the DNS for addresses
// of both families, and so waits for a name server that is out of reach even where /etc/hosts has the name. gRPC reads
// the variable when it is first used; the processes that this one starts do not inherit it.
void UseSystemResolver() {
  constexpr char kVariable[] = "GRPC_DNS_RESOLVER";
  if (std::getenv(kVariable) != nullptr) return;
  setenv(kVariable, "native", 1);
  (void)grpc::InsecureChannelCredentials();
  unsetenv(kVariable);
}

// Of a connection that ended before TLS began. gRPC tells it by these words only.
bool WasReached(absl::string_view message) {
  for (const char* words : {"Failed to connect to remote host", "DNS resolution failed",
                            "no process accepted a link"}) {
    if (absl::StrContains(message, words)) return false;
  }
  return true;
}

}  // namespace

absl::StatusOr<std::unique_ptr<Transport>> OpenTransport(const std::string& tls,
                                                         std::chrono::milliseconds silence_max) {
  if (tls.empty()) return NewTransportByAddress({.silence_max = silence_max});  // on loopback only
  static std::once_flag first;
  std::call_once(first, UseSystemResolver);
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
  return NewTransportByAddress(
      {.server_credentials = grpc::SslServerCredentials(server),
       .channel_credentials = grpc::SslCredentials(channel),
       .server_name = IsForAnyHost(channel.pem_root_certs) ? kAnyHostName : "",
       .peers = std::make_shared<Revocations>(tls),
       .silence_max = silence_max});
}

absl::Status ExplainConnection(const absl::Status& status, const std::string& address,
                               const std::string& tls) {
  if (!absl::IsUnavailable(status)) return status;
  if (!WasReached(status.message())) {
    return absl::UnavailableError(absl::StrCat("no process was reached at ", address, " (",
                                               std::string(status.message()),
                                               "): start it, or correct the address"));
  }
  if (tls.empty()) return status;
  return absl::UnavailableError(absl::StrCat(
      "cannot connect over TLS to ", address, " (", std::string(status.message()),
      "): if a controller runs there, the certificate in ", tls,
      " is not from that cluster's CA, has expired, or does not name this host: use the folder "
      "that `gangway certs` made for that cluster, with all hosts in --hosts"));
}

}  // namespace gangway::transport
