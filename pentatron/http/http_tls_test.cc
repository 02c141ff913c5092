// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/x509v3.h>

#include <cstdio>
#include <cstdlib>
#include <memory>
#include <span>
#include <string>

#include "pentatron/base/error.h"
#include "pentatron/base/temp_folder.h"
#include "pentatron/base/test_support.h"
#include "pentatron/http/http_ranged_source.h"
#include "pentatron/http/range_server_test_support.h"

// Objects over https, from a real TLS server with a certificate of our own.
namespace pentatron::http {
namespace {

using testing::RangeServer;

constexpr HttpSourceOptions kQuick{
    .tries = 2, .first_delay_ms = 1, .connect_timeout_ms = 2000, .read_timeout_ms = 2000};

using Key = std::unique_ptr<EVP_PKEY, decltype(&::EVP_PKEY_free)>;
using Certificate = std::unique_ptr<X509, decltype(&::X509_free)>;

template <typename Write>
void write_pem(const std::string& path, const Write& write) {
  std::FILE* const file = std::fopen(path.c_str(), "w");
  ASSERT_NE(file, nullptr);
  EXPECT_EQ(write(file), 1);
  EXPECT_EQ(std::fclose(file), 0);
}

// A certificate signed by itself for `names` ("IP:127.0.0.1"), good for an hour or past its time.
struct SelfSigned {
  SelfSigned(const std::string& folder, const std::string& name, const std::string& names,
             bool expired = false)
      : certificate(folder + "/" + name + ".pem"), key(folder + "/" + name + ".key") {
    const Key pair(EVP_EC_gen("P-256"), &::EVP_PKEY_free);
    const Certificate made(X509_new(), &::X509_free);
    X509_set_version(made.get(), 2);
    ASN1_INTEGER_set(X509_get_serialNumber(made.get()), 1);
    X509_gmtime_adj(X509_getm_notBefore(made.get()), -7200);
    X509_gmtime_adj(X509_getm_notAfter(made.get()), expired ? -3600 : 3600);
    X509_set_pubkey(made.get(), pair.get());
    X509_NAME* const subject = X509_get_subject_name(made.get());
    const std::string common = "test of Pentatron";
    X509_NAME_add_entry_by_txt(subject, "CN", MBSTRING_ASC,
                               reinterpret_cast<const unsigned char*>(common.c_str()), -1, -1, 0);
    X509_set_issuer_name(made.get(), subject);
    X509_EXTENSION* const extension =
        X509V3_EXT_conf_nid(nullptr, nullptr, NID_subject_alt_name, names.c_str());
    X509_add_ext(made.get(), extension, -1);
    X509_EXTENSION_free(extension);
    EXPECT_GT(X509_sign(made.get(), pair.get(), EVP_sha256()), 0);
    write_pem(certificate, [&](std::FILE* f) { return PEM_write_X509(f, made.get()); });
    write_pem(key, [&](std::FILE* f) {
      return PEM_write_PrivateKey(f, pair.get(), nullptr, nullptr, 0, nullptr, nullptr);
    });
  }

  std::string certificate;
  std::string key;
};

// SSL_CERT_FILE, for the length of a scope.
class TrustedFile final {
 public:
  explicit TrustedFile(const std::string& path) { ::setenv("SSL_CERT_FILE", path.c_str(), 1); }
  ~TrustedFile() { ::unsetenv("SSL_CERT_FILE"); }
  TrustedFile(const TrustedFile&) = delete;
  TrustedFile& operator=(const TrustedFile&) = delete;
};

TEST(HttpsRangedSource, ReadsFromATrustedServer) {
  const TempFolder folder;
  const SelfSigned own(folder.path().string(), "own", "IP:127.0.0.1");
  RangeServer server(own.certificate, own.key);
  std::string content;
  for (int i = 0; i < 100'000; ++i) content += static_cast<char>(i * 131 % 251);
  server.put("/a/b", content, "\"one\"");
  const TrustedFile trusted(own.certificate);
  const HttpRangedSource source(server.url("/a/b"), kQuick);
  EXPECT_EQ(source.size(), content.size());
  for (const std::size_t at : {std::size_t{0}, std::size_t{40'000}, std::size_t{99'000}}) {
    std::string part(1000, '\0');
    source.read(at, std::as_writable_bytes(std::span(part)));
    EXPECT_EQ(part, content.substr(at, 1000));
  }
}

TEST(HttpsRangedSource, RefusesCertificatesThatAreNotTrusted) {
  const TempFolder folder;
  const std::string place = folder.path().string();
  const SelfSigned own(place, "own", "IP:127.0.0.1");
  const SelfSigned other_host(place, "host", "DNS:data.example");
  const SelfSigned expired(place, "old", "IP:127.0.0.1", /*expired=*/true);
  const auto refused = [&](const SelfSigned& served, const SelfSigned& trusted_one) {
    RangeServer server(served.certificate, served.key);
    server.put("/a", "bytes", "");
    const TrustedFile trusted(trusted_one.certificate);
    expect_error(ErrorKind::kIo, server.url("/a") + ": the server's certificate is not trusted",
                 [&] { HttpRangedSource(server.url("/a"), kQuick); });
    EXPECT_EQ(server.requests(), 0) << "asked all the same";
  };
  refused(own, other_host);         // signed by nobody who is trusted
  refused(other_host, other_host);  // of another host
  refused(expired, expired);
}

}  // namespace
}  // namespace pentatron::http
