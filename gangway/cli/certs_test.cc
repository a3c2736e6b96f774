// Certificates of hosts and people: what is in a folder, which roles they open, and how they are
// revoked, also while links are open.
#include "gangway/cli/certs.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <filesystem>
#include <memory>
#include <set>
#include <string>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"

#include "gangway/base/clock.h"
#include "gangway/base/executor.h"
#include "gangway/base/mutex.h"
#include "gangway/cli/access.h"
#include "gangway/transport/server_role.h"

namespace gangway::cli {
namespace {

constexpr std::chrono::seconds kLimit{20};
constexpr std::chrono::seconds kCloseLimit{1};  // promised by docs/guides/hosts.md

class CertsTest : public testing::Test {
 protected:
  CertsTest() {
    std::string pattern = "/tmp/gangway-certs-XXXXXX";
    folder_ = mkdtemp(pattern.data());
    EXPECT_TRUE(MakeCerts({.folder = folder_ + "/tls", .hosts = {"head.example"}}).ok());
  }
  ~CertsTest() override { std::filesystem::remove_all(folder_); }

  CertsOptions Options() const { return {.folder = folder_ + "/tls"}; }
  std::string Folder(const std::string& name) const { return folder_ + "/tls/" + name; }

  absl::Status Add(const std::string& name, const std::string& role,
                   std::vector<std::string> hosts = {"127.0.0.1"}) {
    CertsOptions options = Options();
    options.add = name;
    options.role = role;
    options.hosts = std::move(hosts);
    return AddCerts(options);
  }
  absl::Status RevokeOf(const std::string& name) {
    CertsOptions options = Options();
    options.revoke = name;
    return Revoke(options);
  }
  static std::set<std::string> Files(const std::string& folder) {
    std::set<std::string> names;
    for (const auto& file : std::filesystem::directory_iterator(folder)) {
      struct stat about;
      EXPECT_EQ(stat(file.path().c_str(), &about), 0);
      EXPECT_EQ(about.st_mode & 077, 0u) << file.path();
      names.insert(file.path().filename());
    }
    return names;
  }

  std::string folder_;
};

TEST_F(CertsTest, AFolderHoldsOnlyWhatItsRoleNeeds_SE1) {
  const std::set<std::string> all = {"ca.pem", "cert.pem", "key.pem"};
  auto with = [&all](std::set<std::string> more) {
    more.insert(all.begin(), all.end());
    return more;
  };
  ASSERT_TRUE(Add("a.example", "worker", {"a.example"}).ok());
  ASSERT_TRUE(Add("head", "controller").ok());
  ASSERT_TRUE(Add("c", "scheduler").ok());
  ASSERT_TRUE(Add("alice", "client", {}).ok());
  EXPECT_EQ(Files(Folder("a.example")), with({"worker.token"}));
  EXPECT_EQ(Files(Folder("alice")), with({"token"}));
  EXPECT_EQ(Files(Folder("c")), with({"scheduler.token", "verifiers"}));
  EXPECT_EQ(Files(Folder("head")), with({"compiler.token", "token", "tool.token", "verifiers"}));
  EXPECT_EQ(ReadCertificateId(*ReadPrivateFile(Folder("a.example/cert.pem")))->name,
            "worker/a.example");
  EXPECT_TRUE(CheckCertificate(Folder("a.example"), "a.example").ok());
  for (const char* host : {"head.example", "localhost", "127.0.0.1"})
    EXPECT_FALSE(CheckCertificate(Folder("a.example"), host).ok()) << host;
}

TEST_F(CertsTest, WhatCannotBeAddedOrRevokedIsNamed) {
  ASSERT_TRUE(Add("a", "worker").ok());
  EXPECT_EQ(Add("a", "worker").code(), absl::StatusCode::kAlreadyExists);
  EXPECT_EQ(Add("token", "client").code(), absl::StatusCode::kAlreadyExists);
  for (const char* name : {"..", ".a", "a/b", "", "a b", "fd00::1"})
    EXPECT_EQ(Add(name, "worker").code(), absl::StatusCode::kInvalidArgument) << name;
  for (const char* role : {"", "cook", "Worker"})
    EXPECT_EQ(Add("b", role).code(), absl::StatusCode::kInvalidArgument) << role;
  EXPECT_EQ(Add("b", "worker", {}).code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(Add("b", "worker", {"x,DNS:y"}).code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(RevokeOf("nobody").code(), absl::StatusCode::kNotFound);
  EXPECT_FALSE(std::filesystem::exists(Folder("b")));
  std::filesystem::remove(Folder("ca.key"));
  EXPECT_EQ(Add("b", "worker").code(), absl::StatusCode::kNotFound);
}

TEST_F(CertsTest, ARevokedCertificateIsRefusedByName) {
  ASSERT_TRUE(Add("a", "worker").ok() && Add("b", "worker").ok());
  const std::string a = *ReadPrivateFile(Folder("a/cert.pem")),
                    b = *ReadPrivateFile(Folder("b/cert.pem"));
  transport::Revocations policy(folder_ + "/tls");
  EXPECT_EQ(*policy.Check(a), "worker/a");
  ASSERT_TRUE(RevokeOf("a").ok());
  const absl::Status refused = policy.Check(a).status();  // at once, without a notice
  EXPECT_EQ(refused.code(), absl::StatusCode::kPermissionDenied);
  for (const char* part : {"worker/a", "was revoked", "gangway certs"})
    EXPECT_TRUE(absl::StrContains(refused.message(), part)) << refused;
  EXPECT_EQ(*policy.Check(b), "worker/b");
  ASSERT_TRUE(RevokeOf("b").ok());
  EXPECT_FALSE(policy.Check(a).ok());
  EXPECT_FALSE(policy.Check(b).ok());
  // The same name, but another certificate.
  std::filesystem::remove_all(Folder("a"));
  ASSERT_TRUE(Add("a", "worker").ok());
  EXPECT_TRUE(policy.Check(*ReadPrivateFile(Folder("a/cert.pem"))).ok());
  EXPECT_EQ(Files(Folder("a")).count("revoked"), 1u);
  EXPECT_FALSE(policy.Check("no certificate").ok());
  chmod(Folder("revoked").c_str(), 0644);
  EXPECT_FALSE(policy.Check(b).ok()) << "what was revoked stays revoked";
}

// As `cp` and Python's shutil.copy do: the bytes first, then the mode.
TEST_F(CertsTest, AListWhoseModeIsSetLastCounts_SE1) {
  ASSERT_TRUE(Add("a", "worker").ok());
  const std::string a = *ReadPrivateFile(Folder("a/cert.pem"));
  ASSERT_TRUE(RevokeOf("a").ok());
  const std::string outside = folder_ + "/list";
  std::filesystem::rename(Folder("revoked"), outside);
  chmod(outside.c_str(), 0644);
  transport::Revocations policy(folder_ + "/tls");
  Mutex mutex;
  CondVar changed;
  int looks = 0;
  bool refused = false;
  const uint64_t id = policy.Subscribe([&] {
    MutexLock lock(mutex);
    ++looks;
    refused = !policy.Check(a).ok();
    changed.NotifyAll();
  });
  std::filesystem::rename(outside, Folder("revoked"));
  {
    MutexLock lock(mutex);
    EXPECT_TRUE(changed.WaitFor(mutex, kCloseLimit, [&] { return looks > 0; }));
    EXPECT_FALSE(refused) << "it is not private yet";
  }
  chmod(Folder("revoked").c_str(), 0600);
  {
    MutexLock lock(mutex);
    EXPECT_TRUE(changed.WaitFor(mutex, kCloseLimit, [&] { return refused; }));
  }
  policy.Unsubscribe(id);
}

// Both ends of links over TLS, in this process.
class LinksTest : public CertsTest {
 protected:
  LinksTest() {
    EXPECT_TRUE(Add("head", "controller").ok() && Add("a", "worker").ok() &&
                Add("b", "worker").ok());
    head_ = *OpenTransport(Folder("head"));
    listener_ = *head_->Listen("127.0.0.1:0", [this](const std::shared_ptr<transport::Link>& link) {
      MutexLock lock(mutex_);
      names_.insert(link->peer().certificate);
      links_.push_back(link);
      changed_.NotifyAll();
      return transport::LinkEvents{.executor = &loop_};
    });
  }
  ~LinksTest() override {
    links_.clear();
    listener_.reset();
    head_.reset();
    loop_.Stop();
  }

  absl::StatusOr<std::shared_ptr<transport::Link>> Connect(transport::Transport& from,
                                                           std::shared_ptr<absl::Status> end) {
    return from.Connect(listener_->address(),
                        {.executor = &loop_,
                         .on_frame = [](const wire::Frame&) {},
                         .on_closed =
                             [this, end](const absl::Status& why) {
                               MutexLock lock(mutex_);
                               *end = why;
                               changed_.NotifyAll();
                             }},
                        kLimit);
  }
  bool Ended(const std::shared_ptr<absl::Status>& end, std::chrono::milliseconds limit) {
    MutexLock lock(mutex_);
    return changed_.WaitFor(mutex_, limit, [&] { return !end->ok(); });
  }
  // Brings the list of the authority to a process, as its operator does.
  void CopyList(const std::string& to) {
    ASSERT_TRUE(
        WritePrivateFile(Folder(to) + "/revoked", *ReadPrivateFile(Folder("revoked"))).ok());
  }

  EventLoop loop_{"links"};
  Mutex mutex_;
  CondVar changed_;
  std::set<std::string> names_ GANGWAY_GUARDED_BY(mutex_);
  std::vector<std::shared_ptr<transport::Link>> links_;
  std::unique_ptr<transport::Transport> head_;
  std::unique_ptr<transport::Listener> listener_;
};

TEST_F(LinksTest, RevokingAPeerClosesItsLinksAndKeepsItOut_SE1) {
  auto a = *OpenTransport(Folder("a")), b = *OpenTransport(Folder("b"));
  auto end_a = std::make_shared<absl::Status>(), end_b = std::make_shared<absl::Status>();
  auto link_a = Connect(*a, end_a), link_b = Connect(*b, end_b);
  ASSERT_TRUE(link_a.ok() && link_b.ok()) << link_a.status() << link_b.status();
  EXPECT_EQ((*link_a)->peer().certificate, "controller/head");
  ASSERT_TRUE(RevokeOf("a").ok());
  const auto began = Clock::now();
  CopyList("head");
  EXPECT_TRUE(Ended(end_a, kCloseLimit)) << "the link is still open";
  RecordProperty("closed_ms", static_cast<int>((Clock::now() - began).count() / 1000000));
  {
    MutexLock lock(mutex_);
    EXPECT_TRUE(absl::StrContains(end_a->message(), "worker/a was revoked")) << *end_a;
    const std::set<std::string> both{"worker/a",
                                     "worker/b"};  // the listener may learn of a link last
    EXPECT_TRUE(changed_.WaitFor(mutex_, kCloseLimit,
                                 [&]() GANGWAY_NO_ANALYSIS { return names_ == both; }));
  }
  auto again = Connect(*a, end_a);
  EXPECT_EQ(again.status().code(), absl::StatusCode::kPermissionDenied) << again.status();
  EXPECT_TRUE(absl::StrContains(again.status().message(), "was revoked")) << again.status();
  EXPECT_FALSE(Ended(end_b, std::chrono::milliseconds(50))) << "the other's link stays";
  EXPECT_TRUE(Connect(*b, std::make_shared<absl::Status>()).ok());
}

TEST_F(LinksTest, AListenerWhoseCertificateIsRevokedIsLeft_SE1) {
  auto a = *OpenTransport(Folder("a"));
  auto end = std::make_shared<absl::Status>();
  auto link = Connect(*a, end);
  ASSERT_TRUE(link.ok()) << link.status();
  ASSERT_TRUE(RevokeOf("head").ok());
  CopyList("a");
  EXPECT_TRUE(Ended(end, kCloseLimit));
  auto again = Connect(*a, end);
  EXPECT_EQ(again.status().code(), absl::StatusCode::kPermissionDenied) << again.status();
}

TEST_F(LinksTest, AWorkerIsNotTakenForAController_SE1) {
  auto a = *OpenTransport(Folder("a"));
  auto true_head = Connect(*a, std::make_shared<absl::Status>());
  ASSERT_TRUE(true_head.ok()) << true_head.status();
  EXPECT_TRUE(transport::CheckControls((*true_head)->peer(), "there").ok());
  auto b = *OpenTransport(Folder("b"));
  auto listener = b->Listen("127.0.0.1:0", [this](const std::shared_ptr<transport::Link>&) {
    return transport::LinkEvents{.executor = &loop_};
  });
  ASSERT_TRUE(listener.ok()) << listener.status();
  listener_ = *std::move(listener);
  auto impostor = Connect(*a, std::make_shared<absl::Status>());
  ASSERT_TRUE(impostor.ok()) << "as the data link of a worker it may be";
  const absl::Status refused = transport::CheckControls((*impostor)->peer(), "there");
  EXPECT_EQ(refused.code(), absl::StatusCode::kPermissionDenied);
  EXPECT_TRUE(absl::StrContains(refused.message(), "worker/b")) << refused;
  listener_.reset();
}

TEST_F(LinksTest, ACertificateIsSuspectedOnlyWhereAProcessWasReached) {
  ASSERT_TRUE(MakeCerts({.folder = folder_ + "/other", .hosts = {"127.0.0.1"}}).ok());
  auto stranger = *OpenTransport(folder_ + "/other");
  const std::string address = listener_->address();
  auto why = [&](transport::Transport& from) {
    auto link = from.Connect(address, {.executor = &loop_}, kLimit);
    return std::string(ExplainConnection(link.status(), address, "the folder").message());
  };
  const std::string strange = why(*stranger);
  EXPECT_TRUE(absl::StrContains(strange, "is not from that cluster's CA")) << strange;
  listener_.reset();
  for (transport::Transport* from : {stranger.get(), head_.get()}) {
    const std::string gone = why(*from);
    EXPECT_TRUE(absl::StrContains(gone, "no process was reached at " + address)) << gone;
    EXPECT_FALSE(absl::StrContains(gone, "CA")) << gone;
  }
}

// Every address has the same name in these certificates, but of one cluster only.
TEST_F(LinksTest, PeersOfAClusterForAnyHostExpectItsNameAtEveryAddress_SE1) {
  CertsOptions any = {.folder = folder_ + "/any", .any_host = true};
  ASSERT_TRUE(MakeCerts(any).ok());
  any.add = "w";
  any.role = "worker";
  ASSERT_TRUE(AddCerts(any).ok());
  auto worker = *OpenTransport(folder_ + "/any/w");
  auto listener = worker->Listen("127.0.0.1:0", [this](const std::shared_ptr<transport::Link>&) {
    return transport::LinkEvents{.executor = &loop_};
  });
  ASSERT_TRUE(listener.ok()) << listener.status();
  listener_ = *std::move(listener);
  auto whole = *OpenTransport(folder_ + "/any");
  auto link = Connect(*whole, std::make_shared<absl::Status>());
  ASSERT_TRUE(link.ok()) << link.status();
  EXPECT_EQ((*link)->peer().certificate, "worker/w");
  CertsOptions other = {.folder = folder_ + "/other", .any_host = true};
  ASSERT_TRUE(MakeCerts(other).ok());
  auto stranger = *OpenTransport(other.folder);
  EXPECT_FALSE(Connect(*stranger, std::make_shared<absl::Status>()).ok());
  listener_.reset();
}

TEST_F(LinksTest, AClientsCertificateServesNobody_SE1) {
  ASSERT_TRUE(Add("alice", "client").ok());
  auto alice = *OpenTransport(Folder("alice"));
  auto listener = alice->Listen("127.0.0.1:0", [this](const std::shared_ptr<transport::Link>&) {
    return transport::LinkEvents{.executor = &loop_};
  });
  ASSERT_TRUE(listener.ok());
  listener_ = *std::move(listener);
  auto a = *OpenTransport(Folder("a"));
  EXPECT_FALSE(Connect(*a, std::make_shared<absl::Status>()).ok());
  listener_.reset();
}

}  // namespace
}  // namespace gangway::cli
