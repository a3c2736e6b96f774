// Clients of the native protocol against real processes. Each case runs alone, against a cluster
// that tests/test_native.py has started: GANGWAY_TEST_CONTROL is its control address,
// GANGWAY_TEST_FOLDER has its tokens.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <algorithm>
#include <cstdlib>
#include <thread>

#include "absl/strings/str_cat.h"
#include "tests/native/native_client.h"

#include "gangway/base/ids.h"

namespace gangway::e2e {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr ArrayHandle kNeverMade{987654321};

class NativeE2eTest : public ClusterTest {
 protected:
  absl::StatusOr<NativeClient> TryConnect(const std::string& address) {
    auto client = Open(address);
    if (!client.ok()) return client.status();
    return NativeClient(*std::move(client));
  }
  NativeClient MustConnect() {
    auto client = TryConnect(control_);
    if (!client.ok()) ADD_FAILURE() << client.status();
    return client.ok() ? *std::move(client) : NativeClient(nullptr);
  }

  // A session on a bare link, for which the test builds the frames.
  std::unique_ptr<BareLink> BareSession(wire::HelloReply* welcome = nullptr) {
    auto link = std::make_unique<BareLink>(*transport_, control_);
    link->Send(HelloFrame(wire::ROLE_CLIENT));
    wire::HelloReply reply = link->TakeHelloReply();
    EXPECT_EQ(reply.failure().code(), 0) << reply.failure().DebugString();
    if (welcome != nullptr) *welcome = reply;
    return link;
  }

  // A stream to the first worker that a session was told of.
  std::unique_ptr<BareLink> OpenStream(const wire::HelloReply& welcome, wire::Role role,
                                       uint64_t session, const std::string& token) {
    auto link =
        std::make_unique<BareLink>(*transport_, welcome.topology().workers(0).data_address());
    wire::Frame hello = HelloFrame(role);
    hello.mutable_hello()->set_session(session);
    hello.mutable_hello()->set_token(token);
    link->Send(std::move(hello));
    return link;
  }

  // Waits for a status of the cluster; false after the limit.
  bool WaitFor(const std::function<bool(const wire::StatusReply&)>& wanted) {
    const auto deadline = std::chrono::steady_clock::now() + kLimit;
    while (!wanted(Status())) {
      if (std::chrono::steady_clock::now() > deadline) return false;
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
    }
    return true;
  }

  // Waits until the controller knows that the array is lost, which no event reports; false after
  // the limit.
  static bool WaitLost(NativeClient& client, ArrayHandle array) {
    const auto deadline = std::chrono::steady_clock::now() + kLimit;
    while (client.Await(array).ok()) {
      if (std::chrono::steady_clock::now() > deadline) return false;
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
    return true;
  }
};

// The error for a handle that is unknown in this session names the handle and the remedy.
void ExpectNamed(const absl::Status& status, ArrayHandle handle) {
  const wire::Failure failure = wire::ToFailure(status);
  EXPECT_EQ(failure.code(), static_cast<int>(absl::StatusCode::kInvalidArgument)) << status;
  EXPECT_THAT(failure.message(), HasSubstr(absl::StrCat("handle ", handle, " is not known")));
  EXPECT_THAT(failure.advice(), HasSubstr("belongs to another session"));
}

TEST_F(NativeE2eTest, UnknownFreedAndForeignHandlesAreNamed_OB_3) {
  NativeClient owner = MustConnect(), client = MustConnect();
  // Both clients number their arrays from the same start; the client never reaches the owner's last.
  ArrayHandle foreign{};
  for (int i = 0; i < 100; ++i) foreign = owner.Put({5, 6, 7, 8});
  ASSERT_TRUE(owner.Await(foreign).ok());
  const ArrayHandle kept = client.Put({1, 2, 3, 4}), freed = client.Put({9, 9, 9, 9});
  ASSERT_TRUE(client.Await(freed).ok());
  client->Drop(std::vector{freed});
  auto twice = client.CompileDouble();
  ASSERT_TRUE(twice.ok()) << twice.status();

  for (ArrayHandle bad : {kNeverMade, freed, foreign}) {
    SCOPED_TRACE(bad);
    ExpectNamed(client.Get(bad).status(), bad);
    ExpectNamed(client.Await(bad), bad);
    const ArrayHandle result = client.Run(*twice, bad);
    ExpectNamed(client.Await(result), bad);
    ExpectNamed(client.Get(client.Run(*twice, result)).status(), bad);  // it propagates (ER-1)
    const ArrayHandle copied = client->NewArrayHandle(), view = client->NewArrayHandle();
    client->Copy(std::vector{bad}, std::vector{copied}, std::vector<uint32_t>{0}, "");
    client->Regroup({{.array = view, .shards = {{bad, 0}}}});
    ExpectNamed(client.Await(copied), bad);
    ExpectNamed(client.Await(view), bad);
    client->Drop(std::vector{bad, bad});
    client->Delete(std::vector{bad});
    auto goes_on = client.Get(client.Run(*twice, kept));
    ASSERT_TRUE(goes_on.ok()) << goes_on.status();
    EXPECT_THAT(*goes_on, ElementsAre(2, 4, 6, 8));
  }
  auto unharmed = owner.Get(foreign);
  ASSERT_TRUE(unharmed.ok()) << unharmed.status();
  EXPECT_THAT(*unharmed, ElementsAre(5, 6, 7, 8));
}

// Operations on a handle of another session: a call, a copy, and views with a valid and an invalid
// shard index.
std::vector<wire::Op> UsesOf(uint64_t handle, uint64_t executable, uint64_t first_result) {
  std::vector<wire::Op> ops(4);
  ops[0].mutable_call()->set_executable(executable);
  ops[0].mutable_call()->add_arguments(handle);
  ops[0].mutable_call()->add_results(first_result);
  ops[1].mutable_copy()->add_sources(handle);
  ops[1].mutable_copy()->add_results(first_result + 1);
  ops[1].mutable_copy()->add_devices(0);
  wire::RegroupOp::Result* view = ops[2].mutable_regroup()->add_results();
  view->set_array(first_result + 2);
  view->add_shards()->set_array(handle);
  wire::RegroupOp::Result* far = ops[3].mutable_regroup()->add_results();
  far->set_array(first_result + 3);
  far->add_shards()->set_array(handle);
  far->mutable_shards(0)->set_shard(1u << 31);
  return ops;
}

TEST_F(NativeE2eTest, BareFramesReachNothingOfAnotherSession_OB_3) {
  NativeClient owner = MustConnect();
  const ArrayHandle foreign = owner.Put({5, 6, 7, 8});
  auto foreign_executable = owner.CompileDouble();
  ASSERT_TRUE(foreign_executable.ok()) << foreign_executable.status();
  ASSERT_TRUE(owner.Await(foreign).ok());
  auto link = BareSession();

  uint64_t await = 0;
  auto expect_spoiled = [&](uint64_t array, const std::string& words) {
    wire::Op op;
    op.mutable_await()->set_await(++await);
    op.mutable_await()->add_arrays(array);
    link->Send(op);
    const wire::Failure failure = link->TakeEvent([&](const wire::SessionEvent& event) {
                                        return event.await_done().await() == await;
                                      })
                                      .await_done()
                                      .failure();
    EXPECT_EQ(failure.code(), static_cast<int>(absl::StatusCode::kInvalidArgument));
    EXPECT_THAT(failure.message(), HasSubstr(words));
    EXPECT_THAT(failure.advice(), HasSubstr("belongs to another session"));
  };
  for (const wire::Op& op : UsesOf(NumberOf(foreign), NumberOf(*foreign_executable), 100))
    link->Send(op);
  expect_spoiled(100, absl::StrCat("executable handle ", *foreign_executable));
  for (uint64_t result : {101, 102, 103})
    expect_spoiled(result, absl::StrCat("array handle ", foreign));

  wire::Op fetch;
  fetch.mutable_fetch()->set_fetch(7);
  fetch.mutable_fetch()->add_arrays(NumberOf(foreign));
  fetch.mutable_fetch()->add_shards(0);
  link->Send(fetch);
  const wire::SessionEvent refused =
      link->TakeEvent([](const wire::SessionEvent& event) { return event.has_fetch_failed(); });
  EXPECT_THAT(refused.fetch_failed().failure().message(),
              HasSubstr(absl::StrCat("array handle ", foreign)));

  wire::Op drop, destroy, drop_executable;
  drop.mutable_drop()->add_handles(NumberOf(foreign));
  destroy.mutable_delete_()->add_handles(NumberOf(foreign));
  drop_executable.mutable_drop_executables()->add_handles(NumberOf(*foreign_executable));
  for (const wire::Op& op : {drop, destroy, drop_executable}) link->Send(op);
  expect_spoiled(NumberOf(foreign), absl::StrCat("array handle ", foreign));  // all were processed

  auto unharmed = owner.Get(owner.Run(*foreign_executable, foreign));
  ASSERT_TRUE(unharmed.ok()) << unharmed.status();
  EXPECT_THAT(*unharmed, ElementsAre(10, 12, 14, 16));
}

void ExpectRefused(BareLink& stream) {
  const wire::Failure refusal = stream.TakeHelloReply().failure();
  EXPECT_EQ(refusal.code(), static_cast<int>(absl::StatusCode::kPermissionDenied));
  EXPECT_THAT(refusal.message(), HasSubstr("token"));
  if (refusal.code() == 0) return;
  for (const wire::Frame& frame : stream.WaitClosed()) EXPECT_FALSE(frame.has_bulk());
}

TEST_F(NativeE2eTest, ADataStreamOpensOnlyWithItsSessionsToken_OB_3) {
  wire::HelloReply welcome;
  auto intruder = BareSession(&welcome);
  const std::string worker = welcome.topology().workers(0).data_address();
  auto open = [&](uint64_t session, const std::string& token) {
    auto link = std::make_unique<BareLink>(*transport_, worker);
    wire::Frame hello = HelloFrame(wire::ROLE_DATA);
    hello.mutable_hello()->set_session(session);
    hello.mutable_hello()->set_token(token);
    link->Send(std::move(hello));
    return link;
  };
  auto own = open(welcome.session(), welcome.data_token());
  EXPECT_EQ(own->TakeHelloReply().failure().code(), 0);

  // Session numbers are sequential, so a peer can guess the next ones before or after they open.
  std::vector<std::unique_ptr<BareLink>> early, late;
  for (uint64_t next = 1; next <= 3; ++next) {
    early.push_back(open(welcome.session() + next, ""));
    early.push_back(open(welcome.session() + next, welcome.data_token()));
  }
  for (auto& link : early) ExpectRefused(*link);
  NativeClient owner = MustConnect();
  const uint64_t session = owner->cluster().session;
  ASSERT_LE(session, welcome.session() + 3) << "the early links did not guess the session";
  const ArrayHandle secret = owner.Put({5, 6, 7, 8});
  for (const std::string& token : {std::string(), welcome.data_token(), std::string(32, 'x')})
    late.push_back(open(session, token));
  auto read = owner.Get(secret);
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_THAT(*read, ElementsAre(5, 6, 7, 8));

  for (auto& link : late) ExpectRefused(*link);
}

// All that a data stream may say about a shard, with the numbers of another session's uploads, fetches and copies.
std::vector<wire::Frame> WordsAbout(uint64_t session, uint64_t number) {
  std::vector<wire::Frame> frames;
  const auto about = [&]() -> wire::Bulk& {
    wire::Bulk& bulk = *frames.emplace_back().mutable_bulk();
    bulk.mutable_name()->set_session(session);
    return bulk;
  };
  const auto upload = [&]() -> wire::Bulk& {
    wire::Bulk& bulk = about();
    bulk.mutable_name()->set_upload(number);
    return bulk;
  };
  const auto fetch = [&]() -> wire::Bulk& {
    wire::Bulk& bulk = about();
    bulk.mutable_name()->set_fetch(number);
    return bulk;
  };
  const auto transfer = [&]() -> wire::Bulk& {
    wire::Bulk& bulk = about();
    bulk.mutable_name()->set_transfer(number);
    return bulk;
  };
  upload().mutable_place_request()->set_size(16);
  upload().mutable_dropped();
  fetch().mutable_received();
  fetch().mutable_resend();
  fetch().mutable_request();
  transfer().mutable_request();
  transfer().mutable_dropped();
  transfer().mutable_received();
  transfer().mutable_placed();
  about().mutable_gone();
  about().mutable_published();
  about().mutable_progress();
  return frames;
}

TEST_F(NativeE2eTest, DataStreamsReachNothingOfAnotherSession_OB_3) {
  wire::HelloReply welcome;
  auto intruder = BareSession(&welcome);
  NativeClient owner = MustConnect();
  const uint64_t session = owner->cluster().session;
  std::vector<ArrayHandle> arrays;
  const auto expect_unharmed = [&](size_t first) {
    for (size_t i = first; i < arrays.size(); ++i) {
      const auto read = owner.Get(arrays[i]);
      ASSERT_TRUE(read.ok()) << read.status();
      EXPECT_THAT(*read, ElementsAre(5, 6, 7, static_cast<float>(i)));
    }
  };
  auto stream = OpenStream(welcome, wire::ROLE_DATA, welcome.session(), welcome.data_token());
  EXPECT_EQ(stream->TakeHelloReply().failure().code(), 0);
  const auto say =
      [&] {  // of what the owner has named, and of what it names next: it counts from 1
        for (uint64_t number = 1; number <= 60; ++number)
          for (wire::Frame& frame : WordsAbout(session, number)) stream->Send(std::move(frame));
      };
  for (int round = 0; round < 10; ++round) {
    say();
    arrays.push_back(owner.Put({5, 6, 7, static_cast<float>(arrays.size())}));
    say();
    expect_unharmed(arrays.size() - 1);
  }
  expect_unharmed(0);
  // Nothing came to the intruder but answers to its own requests of places.
  wire::Frame beat;
  beat.mutable_heartbeat()->set_time_ns(77);
  stream->Send(std::move(beat));
  stream->Take([](const wire::Frame& frame) { return frame.heartbeat().time_ns() == 77; });
  const wire::Frame told = stream->Find([](const wire::Frame& frame) {
    return frame.has_bulk() && !frame.bulk().has_place_answer();
  });
  EXPECT_FALSE(told.has_bulk()) << told.ShortDebugString();

  // A reply to a host callback of another session, and bytes for nothing that it has declared, end only its own stream.
  wire::Frame reply;
  reply.mutable_host_callback_reply()->set_call(1);
  stream->Send(std::move(reply));
  EXPECT_THAT(stream->TakeHelloReply().failure().message(), HasSubstr("without a host callback"));
  stream->WaitClosed();
  // Streams of workers to one another, which read what is offered to them.
  for (wire::Role role : {wire::ROLE_PEER, wire::ROLE_MEMBER}) {
    for (const std::string& token : {welcome.data_token(), std::string(), ClusterToken()}) {
      for (uint64_t named : {uint64_t{0}, welcome.session(), session})
        ExpectRefused(*OpenStream(welcome, role, named, token));
    }
  }
  expect_unharmed(0);
}

// What schedulers, workers, compilers and tools say, on the links of a client.
std::vector<wire::Frame> WordsOfOtherRoles(uint64_t session) {
  std::vector<wire::Frame> frames(8);
  frames[0].mutable_island_batch()->add_items()->mutable_end_session()->set_session(session);
  auto& reports = *frames[1].mutable_report_batch();
  for (uint64_t ordinal = 1; ordinal <= 100; ++ordinal)
    *reports.add_reports()->mutable_done()->mutable_failure() =
        wire::MakeFailure(absl::StatusCode::kInternal, "said by a client");
  wire::WorkerState& down = *reports.add_reports()->mutable_worker_state();
  *down.mutable_failure() = wire::MakeFailure(absl::StatusCode::kUnavailable, "said by a client");
  frames[2].mutable_compile_result()->set_request(1);
  frames[3].mutable_drain_request()->set_all(true);
  frames[4].mutable_status_request();
  frames[5].mutable_why_request()->set_session(session);
  frames[6] = HelloFrame(wire::ROLE_TOOL);
  frames[7].mutable_hello_reply()->set_session(session);
  return frames;
}

TEST_F(NativeE2eTest, WordsOfOtherRolesDoNothingOnAClientsLinks_OB_3) {
  wire::HelloReply welcome;
  auto control = BareSession(&welcome);
  auto data = OpenStream(welcome, wire::ROLE_DATA, welcome.session(), welcome.data_token());
  EXPECT_EQ(data->TakeHelloReply().failure().code(), 0);
  NativeClient owner = MustConnect();
  auto twice = owner.CompileDouble();
  ASSERT_TRUE(twice.ok()) << twice.status();
  const ArrayHandle array = owner.Put({5, 6, 7, 8});
  for (BareLink* link : {control.get(), data.get()}) {
    for (wire::Frame& frame : WordsOfOtherRoles(owner->cluster().session))
      link->Send(std::move(frame));
    wire::Frame beat;
    beat.mutable_heartbeat()->set_time_ns(77);
    link->Send(std::move(beat));
    link->Take([](const wire::Frame& frame) { return frame.heartbeat().time_ns() == 77; });
    const wire::Frame told = link->Find([](const wire::Frame& frame) {
      return frame.has_status_reply() || frame.has_why_reply() || frame.has_drain_reply() ||
             frame.has_hello_reply();
    });
    EXPECT_EQ(told.body_case(), wire::Frame::BODY_NOT_SET) << told.ShortDebugString();
  }
  const auto unharmed = owner.Get(owner.Run(*twice, array));
  ASSERT_TRUE(unharmed.ok()) << unharmed.status();
  EXPECT_THAT(*unharmed, ElementsAre(10, 12, 14, 16));
  const wire::StatusReply status = Status();
  for (const auto& worker : status.workers()) {
    EXPECT_TRUE(worker.state().up());
    EXPECT_FALSE(worker.state().draining());
  }
}

// A token stays right for as long as its controller lives; so a worker, also its next process, knows who has ended.
TEST_F(NativeE2eTest, ATokenOpensNothingAfterItsSession_OB_2) {
  wire::HelloReply first;
  auto session = BareSession(&first);
  const auto open = [&](const wire::HelloReply& at) {
    return OpenStream(at, wire::ROLE_DATA, first.session(), first.data_token())
        ->TakeHelloReply()
        .failure();
  };
  EXPECT_EQ(open(first).code(), 0);
  session.reset();
  ASSERT_TRUE(WaitFor([](const wire::StatusReply& status) { return status.sessions().empty(); }));
  const auto expect_refused = [&] {
    wire::HelloReply second;
    auto other = BareSession(&second);
    NativeClient client = MustConnect();
    ASSERT_TRUE(client.Await(client.Put({1, 2, 3, 4})).ok()) << "behind the end of the session";
    const wire::Failure refusal = open(second);
    EXPECT_EQ(refusal.code(), static_cast<int>(absl::StatusCode::kFailedPrecondition));
    EXPECT_THAT(refusal.message(), HasSubstr(absl::StrCat("Session ", first.session(), " has")));
  };
  expect_refused();
  const uint64_t old = Status().workers(0).state().process_id();
  ASSERT_EQ(kill(static_cast<pid_t>(old), SIGKILL), 0);
  ASSERT_TRUE(WaitFor([old](const wire::StatusReply& status) {
    const wire::WorkerState& state = status.workers(0).state();
    return state.up() && state.process_id() != old;
  }));
  expect_refused();
}

TEST_F(NativeE2eTest, AClientIsToldOfItsOwnSessionsRunsOnly_OB_3) {
  NativeClient owner = MustConnect();
  auto twice = owner.CompileDouble();
  ASSERT_TRUE(twice.ok()) << twice.status();
  ASSERT_TRUE(owner.Await(owner.Run(*twice, owner.Put({1, 2, 3, 4}))).ok());
  Arrival<Result<SessionProfile>> own;
  owner->Profile([&own](const Result<SessionProfile>& profile) { own.Set(profile); });
  const auto profile = own.Wait();
  ASSERT_TRUE(profile && profile->ok());
  EXPECT_EQ((*profile)->runs.size(), 1u) << "the session itself hears of its run";

  wire::HelloReply welcome;
  auto other = BareSession(&welcome);
  for (uint64_t named : {owner->cluster().session, uint64_t{0}, UINT64_MAX}) {
    wire::Frame ask;
    ask.mutable_trace_request()->set_probe(named);
    ask.mutable_trace_request()->set_session(named);
    other->Send(std::move(ask));
    for (bool over = false; !over;) {
      const wire::Frame frame =
          other->Take([](const wire::Frame& each) { return each.has_trace_reply(); });
      if (!frame.has_trace_reply()) break;  // it is late, and the test has failed
      const wire::TraceReply& reply = frame.trace_reply();
      EXPECT_EQ(reply.probe(), named);
      EXPECT_EQ(reply.words_size(), 0) << reply.process();  // this session has done nothing
      EXPECT_EQ(reply.names_size(), 0) << reply.process();
      EXPECT_EQ(reply.recorded(), 0u) << reply.process();
      over = reply.end();
    }
  }
}

TEST_F(NativeE2eTest, QuestionsBeyondTheirLimitGetNoAnswerAndDoNoHarm) {
  auto link = BareSession();
  for (uint64_t query = 1; query <= 1000; ++query) {
    wire::Frame ask;
    ask.mutable_usage_request()->set_query(query);
    link->Send(std::move(ask));
  }
  const wire::SessionEvent event =
      link->TakeEvent([](const wire::SessionEvent& each) { return each.usage().query() == 1; });
  EXPECT_GT(event.usage().devices_size(), 0);
  EXPECT_TRUE(MustConnect().CompileDouble().ok()) << "other clients are unaffected";
}

TEST_F(NativeE2eTest, AKilledWorkerIsARecordOnItsArrays_ER_1) {
  NativeClient client = MustConnect();
  auto twice = client.CompileDouble();
  ASSERT_TRUE(twice.ok()) << twice.status();
  const ArrayHandle x = client.Put({1, 2, 3, 4}), y = client.Run(*twice, x);
  ASSERT_TRUE(client.Await(y).ok());
  const wire::WorkerState old = Status().workers(0).state();
  ASSERT_TRUE(old.up());
  ASSERT_EQ(kill(static_cast<pid_t>(old.process_id()), SIGKILL), 0);

  ASSERT_TRUE(WaitLost(client, y));
  for (const absl::Status& status : {client.Await(y), client.Await(x), client.Get(x).status(),
                                     client.Await(client.Run(*twice, y))}) {
    const wire::Failure record = wire::ToFailure(status);
    EXPECT_EQ(record.code(), static_cast<int>(absl::StatusCode::kDataLoss)) << status;
    EXPECT_EQ(record.worker(), "island0/worker0");
    EXPECT_EQ(record.incarnation(), old.worker().incarnation());
    EXPECT_THAT(record.message(), HasSubstr("the worker that held this array is gone"));
    EXPECT_THAT(record.advice(), HasSubstr("Make the array again"));
    EXPECT_EQ(record.device(), 0) << "the whole worker is lost, not one device";
    EXPECT_EQ(record.shard(), 0);
  }

  // While the worker is down or starting, new arrays wait for it; compiled executables are loaded
  // again.
  auto again = client.Get(client.Run(*twice, client.Put({5, 6, 7, 8})));
  ASSERT_TRUE(again.ok()) << again.status();
  EXPECT_THAT(*again, ElementsAre(10, 12, 14, 16));
  const wire::WorkerState fresh = Status().workers(0).state();
  EXPECT_TRUE(fresh.up());
  EXPECT_NE(fresh.process_id(), old.process_id());
  EXPECT_NE(fresh.worker().incarnation(), old.worker().incarnation());
  EXPECT_THAT(fresh.worker().devices(), testing::ElementsAreArray(old.worker().devices()));
}

TEST_F(NativeE2eTest, WithoutTheClustersTokenNobodyIsWelcome) {
  for (wire::Role role : {wire::ROLE_CLIENT, wire::ROLE_WORKER, wire::ROLE_COMPILER,
                          wire::ROLE_SCHEDULER, wire::ROLE_TOOL, wire::ROLE_UNKNOWN}) {
    for (const std::string& token : {std::string(), std::string(64, '0')}) {
      SCOPED_TRACE(absl::StrCat("role ", role, " token ", token));
      BareLink link(*transport_, control_);
      wire::Frame hello = HelloFrame(role);
      hello.mutable_hello()->set_token(token);
      link.Send(std::move(hello));
      const wire::HelloReply reply = link.TakeHelloReply();
      EXPECT_EQ(reply.failure().code(), static_cast<int>(absl::StatusCode::kUnauthenticated));
      EXPECT_THAT(reply.failure().message(), HasSubstr("--state-dir"));
      link.WaitClosed();
    }
  }
  EXPECT_TRUE(MustConnect().CompileDouble().ok()) << "other clients are unaffected";
}

TEST_F(NativeE2eTest, ATokenOpensItsOwnRoleOnly_SE_1) {
  for (wire::Role role : transport::kTokenRoles) {
    for (wire::Role own : transport::kTokenRoles) {
      if (role == own) continue;
      SCOPED_TRACE(
          absl::StrCat(transport::RoleName(own), "'s token, as ", transport::RoleName(role)));
      BareLink link(*transport_, control_);
      wire::Frame hello = HelloFrame(role);
      hello.mutable_hello()->set_token(ClusterToken(own));
      link.Send(std::move(hello));
      const wire::HelloReply reply = link.TakeHelloReply();
      EXPECT_EQ(reply.failure().code(), static_cast<int>(absl::StatusCode::kPermissionDenied));
      for (const std::string& part :
           {absl::StrCat("the token of role ", transport::RoleName(own)),
            absl::StrCat("does not open role ", transport::RoleName(role))})
        EXPECT_THAT(reply.failure().message(), HasSubstr(part));
      link.WaitClosed();
    }
  }
  EXPECT_TRUE(MustConnect().CompileDouble().ok()) << "the cluster is unaffected";
}

TEST_F(NativeE2eTest, APeerOfAnotherVersionIsToldBoth) {
  wire::HelloReply welcome;
  auto session = BareSession(&welcome);
  const std::string worker = welcome.topology().workers(0).data_address();
  for (wire::Role role : {wire::ROLE_CLIENT, wire::ROLE_WORKER, wire::ROLE_COMPILER,
                          wire::ROLE_TOOL, wire::ROLE_DATA}) {
    for (uint32_t version : {wire::kProtocolVersion - 1, wire::kProtocolVersion + 1}) {
      SCOPED_TRACE(absl::StrCat("role ", role, " version ", version));
      BareLink link(*transport_, role == wire::ROLE_DATA ? worker : control_);
      wire::Frame hello = HelloFrame(role);
      hello.mutable_hello()->set_protocol_version(version);
      hello.mutable_hello()->set_build_version("7.7.7");
      link.Send(std::move(hello));
      const wire::HelloReply reply = link.TakeHelloReply();
      EXPECT_EQ(reply.failure().code(), static_cast<int>(absl::StatusCode::kFailedPrecondition));
      for (const std::string& part :
           {absl::StrCat("protocol ", version), std::string("7.7.7"),
            absl::StrCat("protocol ", wire::kProtocolVersion), std::string(wire::kBuildVersion),
            std::string("install the same version on both")}) {
        EXPECT_THAT(reply.failure().message(), HasSubstr(part));
      }
      link.WaitClosed();
    }
  }
  EXPECT_TRUE(MustConnect().CompileDouble().ok()) << "other clients are unaffected";
}

// The listener stands for a server of another version: it sends `reply` to every Hello.
TEST_F(NativeE2eTest, AClientOfAServerOfAnotherVersionIsToldBoth) {
  wire::HelloReply refusal, welcome;
  *refusal.mutable_failure() =
      wire::MakeFailure(absl::StatusCode::kFailedPrecondition,
                        absl::StrCat("the client runs Gangway ", wire::kBuildVersion, " (protocol ",
                                     wire::kProtocolVersion,
                                     "), this side runs 7.7.7 (protocol 77): install the "
                                     "same version on both."));
  welcome.set_session(1);  // from a server that compares no versions
  for (wire::HelloReply* reply : {&refusal, &welcome}) {
    reply->set_build_version("7.7.7");
    reply->set_protocol_version(77);
    EventLoop loop("other version");
    std::shared_ptr<transport::Link> kept;
    auto listener = transport_->Listen("127.0.0.1:0", [&](std::shared_ptr<transport::Link> link) {
      auto answer = [&, link](const wire::Frame&) {
        wire::Frame frame;
        *frame.mutable_hello_reply() = *reply;
        EXPECT_TRUE(link->Send(std::move(frame)).ok());
        kept = link;
      };
      return transport::LinkEvents{
          .executor = &loop, .on_frame = answer, .on_closed = [](const absl::Status&) {}};
    });
    ASSERT_TRUE(listener.ok()) << listener.status();
    const absl::Status status = TryConnect((*listener)->address()).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition) << status;
    for (const std::string& part :
         {std::string("7.7.7 (protocol 77)"),
          absl::StrCat(wire::kBuildVersion, " (protocol ", wire::kProtocolVersion, ")"),
          std::string("install the same version on both")}) {
      EXPECT_THAT(std::string(status.message()), HasSubstr(part));
    }
    listener->reset();
    loop.Stop();
  }
}

// The worker never starts; the cluster runs with --session-wait 2.
TEST_F(NativeE2eTest, ASessionStartsWithoutAnAbsentWorkerAtTheDeadline_TM_1) {
  const auto began = std::chrono::steady_clock::now();
  const auto client = Open(control_);
  const auto took = std::chrono::steady_clock::now() - began;
  ASSERT_TRUE(client.ok()) << client.status();
  const ClusterInfo& cluster = (*client)->cluster();
  ASSERT_EQ(cluster.devices.size(), 1u);
  EXPECT_EQ(cluster.devices[0].worker, 0u);
  EXPECT_THAT(cluster.absent, ElementsAre("island0/worker1 (device 1)"));
  EXPECT_GE(took, std::chrono::milliseconds(1900));
  EXPECT_LT(took, std::chrono::seconds(5));
}

// Connects before the worker is up.
TEST_F(NativeE2eTest, AClientThatWaitsGoesOnWhenTheWorkerComes) {
  NativeClient client = MustConnect();
  auto values = client.Get(client.Put({1, 2, 3, 4}));
  ASSERT_TRUE(values.ok()) << values.status();
  EXPECT_THAT(*values, ElementsAre(1, 2, 3, 4));
}

// The worker is killed and stays away; the cluster runs with --worker-wait 2.
TEST_F(NativeE2eTest, WorkForAWorkerThatStaysAwayEndsNamingIt_TM_1) {
  NativeClient client = MustConnect();
  auto twice = client.CompileDouble();
  ASSERT_TRUE(twice.ok()) << twice.status();
  const pid_t pid = static_cast<pid_t>(Status().workers(0).state().process_id());
  const ArrayHandle before = client.Put({1, 2, 3, 4});
  ASSERT_TRUE(client.Await(before).ok());
  ASSERT_EQ(kill(pid, SIGKILL), 0);
  ASSERT_TRUE(WaitLost(client, before));
  const auto began = std::chrono::steady_clock::now();
  const absl::Status status = client.Get(client.Run(*twice, client.Put({1, 2, 3, 4}))).status();
  const auto took = std::chrono::steady_clock::now() - began;
  const wire::Failure record = wire::ToFailure(status);
  EXPECT_EQ(record.code(), static_cast<int>(absl::StatusCode::kDeadlineExceeded)) << status;
  EXPECT_EQ(record.worker(), "island0/worker0");
  EXPECT_THAT(record.message(), HasSubstr("2000 ms"));
  EXPECT_THAT(record.advice(), HasSubstr("start the worker"));
  EXPECT_LT(took, std::chrono::seconds(6));
}

}  // namespace
}  // namespace gangway::e2e
