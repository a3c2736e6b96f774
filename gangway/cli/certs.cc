// Implementation of certs.h, on OpenSSL 3: P-256 keys, SHA-256 signatures.
#include "gangway/cli/certs.h"

#include <arpa/inet.h>
#include <openssl/bio.h>
#include <openssl/ec.h>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/x509v3.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <memory>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

#include "gangway/base/random.h"
#include "gangway/base/status.h"
#include "gangway/cli/access.h"
#include "gangway/transport/handshake/cluster_token.h"

namespace gangway::cli {
namespace {

constexpr int kDaysMax = 3650;
constexpr long kVersion3 = 2;      // X.509 encodes version 3 as 2
constexpr long kClockSkewS = 300;  // hosts' clocks may differ
constexpr const char* kAlways[] = {"localhost", "127.0.0.1", "::1"};
constexpr const char* kFiles[] = {"ca.pem", "cert.pem", "key.pem", kTokenFile};

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

std::string AlternativeNames(std::vector<std::string> hosts) {
  hosts.insert(hosts.begin(), std::begin(kAlways), std::end(kAlways));
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

// Signed by `issuer` with the key `signer`; self-signed if both are null.
Certificate NewCertificate(EVP_PKEY* key, const std::string& common_name, int days, X509* issuer,
                           EVP_PKEY* signer, const std::string& names) {
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
           AddExtension(made.get(), by, NID_ext_key_usage, "serverAuth,clientAuth") &&
           AddExtension(made.get(), by, NID_subject_alt_name, names);
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

absl::Status CheckOptions(const CertsOptions& options) {
  if (options.days < 1 || options.days > kDaysMax) {
    return absl::InvalidArgumentError(
        absl::StrCat("--days ", options.days, ": choose from 1 to ", kDaysMax));
  }
  for (const std::string& host : options.hosts) {
    GANGWAY_RETURN_IF_ERROR(CheckHost(host));
  }
  for (const char* name : kFiles) {
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
  Certificate authority = NewCertificate(authority_key.get(), "Gangway cluster authority",
                                         options.days, nullptr, nullptr, "");
  if (!authority) return absl::InternalError("OpenSSL could not make the authority's certificate");
  Certificate certificate =
      NewCertificate(key.get(), "Gangway cluster", options.days, authority.get(),
                     authority_key.get(), AlternativeNames(options.hosts));
  if (!certificate) return absl::InternalError("OpenSSL could not make the certificate");
  std::error_code error;
  std::filesystem::create_directories(options.folder, error);
  if (error || chmod(options.folder.c_str(), 0700) != 0) {
    return absl::InternalError(absl::StrCat("cannot make the folder ", options.folder, ": ",
                                            error ? error.message() : "another user owns it"));
  }
  const std::string texts[] = {PemOf(authority.get()), PemOf(certificate.get()), PemOf(key.get()),
                               transport::NewClusterToken() + "\n"};
  for (size_t i = 0; i < std::size(kFiles); ++i) {
    if (texts[i].empty()) return absl::InternalError("OpenSSL could not encode the PEM files");
    GANGWAY_RETURN_IF_ERROR(
        WritePrivateFile(absl::StrCat(options.folder, "/", kFiles[i]), texts[i]));
  }
  return absl::OkStatus();
}

absl::Status CheckCertificate(const std::string& folder, const std::string& host) {
  const std::string path = absl::StrCat(folder, "/cert.pem");
  GANGWAY_ASSIGN_OR_RETURN(auto text, ReadPrivateFile(path));
  Memory memory(BIO_new_mem_buf(text.data(), static_cast<int>(text.size())));
  Certificate certificate(PEM_read_bio_X509(memory.get(), nullptr, nullptr, nullptr));
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
  const int named = IsAddress(host)
                        ? X509_check_ip_asc(certificate.get(), host.c_str(), 0)
                        : X509_check_host(certificate.get(), host.data(), host.size(), 0, nullptr);
  if (named == 1) return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrCat(
      path, " does not name the host ", host,
      ", so other hosts would reject it: make a new folder "
      "with `gangway certs DIR --hosts` and all hosts of the cluster, and copy it to them"));
}

int Certs(const CertsOptions& options) {
  if (auto status = MakeCerts(options); !status.ok()) {
    fprintf(stderr, "gangway certs: %s\n", std::string(status.message()).c_str());
    return 1;
  }
  printf(
      "%s holds the cluster's ca.pem, cert.pem, key.pem and token, valid for %d days.\n"
      "Copy the folder to every host of the cluster, for its owner only, and give it to each "
      "command with --tls.\n",
      options.folder.c_str(), options.days);
  return 0;
}

}  // namespace gangway::cli
