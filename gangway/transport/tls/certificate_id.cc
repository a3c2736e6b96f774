// Implementation of certificate_id.h, on OpenSSL 3.
#include "gangway/transport/tls/certificate_id.h"

#include <openssl/bio.h>
#include <openssl/pem.h>
#include <openssl/x509v3.h>

#include <memory>

#include "absl/strings/escaping.h"

namespace gangway::transport {

absl::StatusOr<CertificateId> ReadCertificateId(const std::string& pem) {
  const std::unique_ptr<BIO, decltype(&BIO_free)> text(
      BIO_new_mem_buf(pem.data(), static_cast<int>(pem.size())), &BIO_free);
  const std::unique_ptr<X509, decltype(&X509_free)> certificate(
      PEM_read_bio_X509(text.get(), nullptr, nullptr, nullptr), &X509_free);
  if (!certificate) return absl::InvalidArgumentError("this is not a certificate in PEM form");
  CertificateId id;
  const ASN1_INTEGER* serial = X509_get0_serialNumber(certificate.get());
  id.serial = absl::BytesToHexString(
      absl::string_view(reinterpret_cast<const char*>(ASN1_STRING_get0_data(serial)),
                        static_cast<size_t>(ASN1_STRING_length(serial))));
  char name[256] = {};
  X509_NAME_get_text_by_NID(X509_get_subject_name(certificate.get()), NID_commonName, name,
                            sizeof(name));
  id.name = name;
  return id;
}

}  // namespace gangway::transport
