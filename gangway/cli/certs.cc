// Implementation of certs.h, on OpenSSL 3: P-256 keys, SHA-256 signatures.
#include "gangway/cli/certs.h"

#include <arpa/inet.h>
#include <openssl/bio.h>
#include <openssl/ec.h>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/x509v3.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <ctime>
#include <memory>
#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

#include "gangway/base/clock.h"
#include "gangway/base/random.h"
#include "gangway/base/status.h"
#include "gangway/cli/access.h"
#include "gangway/transport/tls/any_host.h"

namespace gangway::cli {
namespace {

constexpr int kDaysMax = 3650;
constexpr long kVersion3 = 2;      // X.509 encodes version 3 as 2
constexpr long kClockSkewS = 300;  // hosts' clocks may differ
constexpr const char* kAlways[] = {"localhost", "127.0.0.1", "::1"};
constexpr const char* kMade[] = {"ca.pem", "ca.key", "cert.pem", "key.pem", kSecretFile, "token"};

template <auto kFree>
struct Free {
  template <typename T>
  void operator()(T* value) const {
    kFree(value);
  }
};
using Key = std::unique_ptr<EVP_PKEY, Free<EVP_PKEY_free>>;
using Certificate = std::unique_ptr<X509, Free<X509_free>>;
using Memory = std::unique_ptr<BIO, Free<BIO_free>>;

bool IsAddress(const std::string& host) {
  in6_addr bits;
  return inet_pton(AF_INET, host.c_str(), &bits) == 1 ||
         inet_pton(AF_INET6, host.c_str(), &bits) == 1;
}

// OpenSSL parses an expression that contains the host, so only names and addresses are allowed.
absl::Status CheckHost(const std::string& host) {
  const bool name = !host.empty() && host.size() <= 253 &&
                    std::all_of(host.begin(), host.end(), [](unsigned char c) {
                      return std::isalnum(c) || c == '.' || c == '-' || c == '_';
                    });
  if (name || IsAddress(host)) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("\"", host,
                   "\" is neither a host's name nor an IP address: give --hosts a list such as "
                   "head.example,10.0.0.2"));
}

std::string AlternativeNames(const std::vector<std::string>& hosts) {
  std::vector<std::string> names;
  for (const std::string& host : hosts) {
    std::string name = absl::StrCat(IsAddress(host) ? "IP:" : "DNS:", host);
    if (std::find(names.begin(), names.end(), name) == names.end()) names.push_back(name);
  }
  return absl::StrJoin(names, ",");
}

bool AddExtension(X509* certificate, X509* issuer, int kind, const std::string& value) {
  X509V3_CTX context;
  X509V3_set_ctx_nodb(&context);
  X509V3_set_ctx(&context, issuer, certificate, nullptr, nullptr, 0);
  std::unique_ptr<X509_EXTENSION, Free<X509_EXTENSION_free>> extension(
      X509V3_EXT_conf_nid(nullptr, &context, kind, value.c_str()));
  return extension != nullptr && X509_add_ext(certificate, extension.get(), -1) == 1;
}

enum class Usage { kServe, kConnect };  // kServe: connects, too

// Signed by `issuer` with the key `signer`; self-signed if both are null.
Certificate NewCertificate(EVP_PKEY* key, const std::string& common_name, int days, X509* issuer,
                           EVP_PKEY* signer, const std::string& names,
                           Usage usage = Usage::kServe) {
  Certificate made(X509_new());
  if (!made) return nullptr;
  X509_set_version(made.get(), kVersion3);
  ASN1_INTEGER_set_uint64(X509_get_serialNumber(made.get()), (RandomBits() >> 1) | 1);
  X509_gmtime_adj(X509_getm_notBefore(made.get()), -kClockSkewS);
  X509_time_adj_ex(X509_getm_notAfter(made.get()), days, 0, nullptr);
  X509_set_pubkey(made.get(), key);
  X509_NAME_add_entry_by_txt(X509_get_subject_name(made.get()), "CN", MBSTRING_UTF8,
                             reinterpret_cast<const unsigned char*>(common_name.c_str()), -1, -1,
                             0);
  X509* by = issuer == nullptr ? made.get() : issuer;
  X509_set_issuer_name(made.get(), X509_get_subject_name(by));
  bool good = AddExtension(made.get(), by, NID_subject_key_identifier, "hash");
  if (issuer == nullptr) {
    good = good && AddExtension(made.get(), by, NID_basic_constraints, "critical,CA:TRUE") &&
           AddExtension(made.get(), by, NID_key_usage, "critical,keyCertSign");
  } else {
    good = good && AddExtension(made.get(), by, NID_basic_constraints, "critical,CA:FALSE") &&
           AddExtension(made.get(), by, NID_key_usage, "critical,digitalSignature") &&
           AddExtension(made.get(), by, NID_ext_key_usage,
                        usage == Usage::kServe ? "serverAuth,clientAuth" : "clientAuth") &&
           (names.empty() || AddExtension(made.get(), by, NID_subject_alt_name, names));
  }
  if (!good || X509_sign(made.get(), signer == nullptr ? key : signer, EVP_sha256()) == 0)
    return nullptr;
  return made;
}

template <typename Print>
std::string Pem(Print print) {
  Memory memory(BIO_new(BIO_s_mem()));
  if (!memory || print(memory.get()) != 1) return "";
  char* text = nullptr;
  const long size = BIO_get_mem_data(memory.get(), &text);
  return {text, static_cast<size_t>(size)};
}

std::string PemOf(X509* certificate) {
  return Pem([certificate](BIO* out) { return PEM_write_bio_X509(out, certificate); });
}

std::string PemOf(EVP_PKEY* key) {
  return Pem([key](BIO* out) {
    return PEM_write_bio_PrivateKey(out, key, nullptr, nullptr, 0, nullptr, nullptr);
  });
}

using Files = std::vector<std::pair<std::string, std::string>>;  // name, text

absl::Status WriteFiles(const std::string& folder, const Files& files) {
  for (const auto& [name, text] : files) {
    if (text.empty()) return absl::InternalError("OpenSSL could not encode the PEM files");
    GANGWAY_RETURN_IF_ERROR(WritePrivateFile(absl::StrCat(folder, "/", name), text));
  }
  return absl::OkStatus();
}

absl::Status MakeFolder(const std::string& folder) { return PrivateFolder::Make(folder).status(); }

// What a role needs besides its certificate.
struct RoleNeeds {
  const char* role;
  bool serves;  // others connect to it
  bool checks;  // and present their tokens
  std::vector<wire::Role> tokens;
};
const std::vector<RoleNeeds>& Roles() {
  static const auto* const roles = new std::vector<RoleNeeds>{
      {"controller", true, true, {wire::ROLE_CLIENT, wire::ROLE_COMPILER, wire::ROLE_TOOL}},
      {"scheduler", true, true, {wire::ROLE_SCHEDULER}},
      {"worker", true, false, {wire::ROLE_WORKER}},
      {"client", false, false, {wire::ROLE_CLIENT}}};
  return *roles;
}

absl::StatusOr<RoleNeeds> CheckAdded(const CertsOptions& options, bool any_host) {
  const bool named = !options.add.empty() && options.add.size() <= 40 && options.add[0] != '.' &&
                     CheckHost(options.add).ok() && options.add.find(':') == std::string::npos;
  if (!named) {
    return absl::InvalidArgumentError(absl::StrCat(
        "\"", options.add, "\": give --add a name of at most 40 letters, digits, '.', ",
        "'-' and '_', such as a.example"));
  }
  for (const std::string& host : options.hosts) GANGWAY_RETURN_IF_ERROR(CheckHost(host));
  const std::string folder = absl::StrCat(options.folder, "/", options.add);
  if (access(folder.c_str(), F_OK) == 0) {
    return absl::AlreadyExistsError(absl::StrCat(
        folder, " is there already: choose another name, or revoke it and delete the folder"));
  }
  for (const RoleNeeds& needs : Roles()) {
    if (options.role != needs.role) continue;
    if (needs.serves && options.hosts.empty() && !any_host) {
      return absl::InvalidArgumentError(
          absl::StrCat("others connect to a ", needs.role,
                       ", so its certificate names its host: give --hosts a.example"));
    }
    return needs;
  }
  return absl::InvalidArgumentError(absl::StrCat(
      "--role \"", options.role, "\": choose controller, scheduler, worker or client"));
}

template <typename T>
T FromPem(const std::string& text, T (*read)(BIO*)) {
  Memory memory(BIO_new_mem_buf(text.data(), static_cast<int>(text.size())));
  return memory ? read(memory.get()) : nullptr;
}
Certificate CertificateFrom(const std::string& text) {
  return Certificate(FromPem<X509*>(
      text, [](BIO* from) { return PEM_read_bio_X509(from, nullptr, nullptr, nullptr); }));
}
Key KeyFrom(const std::string& text) {
  return Key(FromPem<EVP_PKEY*>(
      text, [](BIO* from) { return PEM_read_bio_PrivateKey(from, nullptr, nullptr, nullptr); }));
}

absl::Status CheckDays(const CertsOptions& options) {
  if (options.days < 1 || options.days > kDaysMax) {
    return absl::InvalidArgumentError(
        absl::StrCat("--days ", options.days, ": choose from 1 to ", kDaysMax));
  }
  return absl::OkStatus();
}

absl::Status CheckOptions(const CertsOptions& options) {
  GANGWAY_RETURN_IF_ERROR(CheckDays(options));
  for (const std::string& host : options.hosts) {
    GANGWAY_RETURN_IF_ERROR(CheckHost(host));
  }
  for (const char* name : kMade) {
    const std::string path = absl::StrCat(options.folder, "/", name);
    if (access(path.c_str(), F_OK) != 0) continue;
    return absl::AlreadyExistsError(absl::StrCat(
        path,
        " is there already and may be in use: choose another folder, or delete the old one "
        "when no process of its cluster runs"));
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status MakeCerts(const CertsOptions& options) {
  GANGWAY_RETURN_IF_ERROR(CheckOptions(options));
  Key authority_key(EVP_EC_gen("P-256")), key(EVP_EC_gen("P-256"));
  if (!authority_key || !key) return absl::InternalError("OpenSSL could not make a key");
  Certificate authority =
      NewCertificate(authority_key.get(),
                     options.any_host ? transport::kAnyHostAuthority : "Gangway cluster authority",
                     options.days, nullptr, nullptr, "");
  if (!authority) return absl::InternalError("OpenSSL could not make the authority's certificate");
  std::vector<std::string> hosts(std::begin(kAlways), std::end(kAlways));
  hosts.insert(hosts.end(), options.hosts.begin(), options.hosts.end());
  if (options.any_host) hosts.emplace_back(transport::kAnyHostName);
  Certificate certificate =
      NewCertificate(key.get(), "Gangway cluster", options.days, authority.get(),
                     authority_key.get(), AlternativeNames(hosts));
  if (!certificate) return absl::InternalError("OpenSSL could not make the certificate");
  GANGWAY_RETURN_IF_ERROR(MakeFolder(options.folder));
  GANGWAY_RETURN_IF_ERROR(WriteFiles(options.folder, {{"ca.pem", PemOf(authority.get())},
                                                      {"ca.key", PemOf(authority_key.get())},
                                                      {"cert.pem", PemOf(certificate.get())},
                                                      {"key.pem", PemOf(key.get())}}));
  return EnsureTokens(options.folder);
}

absl::Status AddCerts(const CertsOptions& options) {
  GANGWAY_RETURN_IF_ERROR(CheckDays(options));
  const auto any_host = IsForAnyHost(options.folder);
  GANGWAY_ASSIGN_OR_RETURN(auto needs, CheckAdded(options, any_host.value_or(false)));
  auto signer_text = ReadPrivateFile(absl::StrCat(options.folder, "/ca.key"));
  if (!signer_text.ok()) {
    return absl::Status(signer_text.status().code(),
                        absl::StrCat(signer_text.status().message(),
                                     "; give the folder that `gangway certs` made first, with the "
                                     "authority's key"));
  }
  GANGWAY_ASSIGN_OR_RETURN(auto authority_text,
                           ReadPrivateFile(absl::StrCat(options.folder, "/ca.pem")));
  Key signer = KeyFrom(*signer_text), key(EVP_EC_gen("P-256"));
  Certificate authority = CertificateFrom(authority_text);
  if (!signer || !key || !authority || X509_check_private_key(authority.get(), signer.get()) != 1)
    return absl::FailedPreconditionError(
        absl::StrCat(options.folder,
                     ": ca.pem and ca.key are not one authority: restore them, or make a new "
                     "folder"));
  std::vector<std::string> hosts = options.hosts;
  if (any_host.value_or(false) && needs.serves) hosts.emplace_back(transport::kAnyHostName);
  Certificate certificate = NewCertificate(
      key.get(), absl::StrCat(options.role, "/", options.add), options.days, authority.get(),
      signer.get(), AlternativeNames(hosts), needs.serves ? Usage::kServe : Usage::kConnect);
  if (!certificate) return absl::InternalError("OpenSSL could not make the certificate");
  Files files = {{"ca.pem", authority_text},
                 {"cert.pem", PemOf(certificate.get())},
                 {"key.pem", PemOf(key.get())}};
  std::vector<std::string> copied;
  for (wire::Role role : needs.tokens) copied.push_back(TokenFile(role));
  if (needs.checks) copied.emplace_back(kVerifiersFile);
  if (access(absl::StrCat(options.folder, "/", kRevokedFile).c_str(), F_OK) == 0)
    copied.emplace_back(kRevokedFile);
  for (const std::string& name : copied) {
    GANGWAY_ASSIGN_OR_RETURN(auto text, ReadPrivateFile(absl::StrCat(options.folder, "/", name)));
    files.emplace_back(name, text);
  }
  const std::string folder = absl::StrCat(options.folder, "/", options.add);
  GANGWAY_RETURN_IF_ERROR(MakeFolder(folder));
  return WriteFiles(folder, files);
}

absl::Status Revoke(const CertsOptions& options) {
  const std::string path = absl::StrCat(options.folder, "/", options.revoke, "/cert.pem");
  GANGWAY_ASSIGN_OR_RETURN(auto text, ReadPrivateFile(path));
  GANGWAY_ASSIGN_OR_RETURN(auto id, ReadCertificateId(text));
  const std::string list = absl::StrCat(options.folder, "/", kRevokedFile);
  std::string lines;
  if (access(list.c_str(), F_OK) == 0) {
    GANGWAY_ASSIGN_OR_RETURN(lines, ReadPrivateFile(list));
  }
  const auto now = static_cast<std::time_t>(
      std::chrono::duration_cast<std::chrono::seconds>(WallClock::now().time_since_epoch())
          .count());
  std::tm day = {};
  gmtime_r(&now, &day);
  char date[16] = {};
  std::strftime(date, sizeof(date), "%Y-%m-%d", &day);
  return WritePrivateFile(list, absl::StrCat(lines, id.serial, " ", id.name, " ", date, "\n"));
}

absl::StatusOr<bool> IsForAnyHost(const std::string& folder) {
  if (folder.empty()) return false;
  GANGWAY_ASSIGN_OR_RETURN(auto text, ReadPrivateFile(absl::StrCat(folder, "/ca.pem")));
  return transport::IsForAnyHost(text);
}

absl::Status CheckCertificate(const std::string& folder, const std::string& host) {
  const std::string path = absl::StrCat(folder, "/cert.pem");
  GANGWAY_ASSIGN_OR_RETURN(auto text, ReadPrivateFile(path));
  Certificate certificate = CertificateFrom(text);
  if (!certificate) {
    return absl::FailedPreconditionError(absl::StrCat(
        path, " holds no certificate in PEM form: make a new folder with `gangway certs`"));
  }
  if (X509_cmp_current_time(X509_get0_notAfter(certificate.get())) <= 0 ||
      X509_cmp_current_time(X509_get0_notBefore(certificate.get())) > 0) {
    return absl::FailedPreconditionError(absl::StrCat(
        path,
        " has expired or is not valid yet: check this host's clock, or make a new folder "
        "with `gangway certs` and copy it to all hosts"));
  }
  GANGWAY_ASSIGN_OR_RETURN(const bool any_host, IsForAnyHost(folder));
  const std::string name = any_host ? transport::kAnyHostName : host;
  const int named = IsAddress(name)
                        ? X509_check_ip_asc(certificate.get(), name.c_str(), 0)
                        : X509_check_host(certificate.get(), name.data(), name.size(), 0, nullptr);
  if (named == 1) return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrCat(
      path, " does not name the host ", host,
      ", so other hosts would reject it: make a new folder "
      "with `gangway certs DIR --hosts` and all hosts of the cluster, and copy it to them"));
}

int Certs(const CertsOptions& options) {
  const bool adds = !options.add.empty(), revokes = !options.revoke.empty();
  absl::Status status;
  if (adds && revokes) {
    status = absl::InvalidArgumentError("give --add or --revoke, not both");
  } else {
    status = adds ? AddCerts(options) : revokes ? Revoke(options) : MakeCerts(options);
  }
  if (!status.ok()) {
    fprintf(stderr, "gangway certs: %s\n", std::string(status.message()).c_str());
    return 1;
  }
  const char* folder = options.folder.c_str();
  if (adds) {
    printf(
        "%s/%s holds what this %s needs, valid for %d days: copy it to the host, for its owner "
        "only, and give it to the command with --tls.\n",
        folder, options.add.c_str(), options.role.c_str(), options.days);
  } else if (revokes) {
    printf(
        "%s is revoked in %s/%s. Copy this file to the TLS folder of every process: it then closes "
        "the links at once.\n",
        options.revoke.c_str(), folder, kRevokedFile);
  } else {
    printf(
        "%s holds the cluster's authority, secret and tokens, and a certificate for all roles, "
        "valid for %d days: the folder opens the cluster to each of its readers.\n"
        "Make a folder for each host or person with --add NAME --role ROLE, and give it to the "
        "command with --tls.\n",
        folder, options.days);
  }
  return 0;
}

}  // namespace gangway::cli
