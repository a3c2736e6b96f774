// Implementation of session_call.h.
#include "gangway/frontdoor/ifrt/session_call.h"

#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"

#include "gangway/base/clock.h"
#include "gangway/base/status.h"
#include "gangway/frontdoor/ifrt/requests.h"
#include "gangway/frontdoor/ifrt/status.h"

namespace gangway::ifrt {
namespace {

constexpr char kSessionMetadata[] = "ifrt-proxy-grpc-ifrt-session-metadata-bin";
constexpr char kTokenAttribute[] = "gangway_token";
constexpr char kProcessAttribute[] = "client_pid";
// For the last answers, which a client that has ended its requests may not read.
constexpr std::chrono::seconds kDrainLimit{5};
constexpr std::chrono::milliseconds kSoon{4};

google::protobuf::ArenaOptions StartingWith(char* block, size_t bytes) {
  google::protobuf::ArenaOptions options;
  options.initial_block = block;
  options.initial_block_size = bytes;
  return options;
}

}  // namespace

SessionCall::SessionCall(CallEnvironment& environment)
    : Call(environment),
      stream_(&context_),
      writer_([this](const IfrtResponse& response,
                     const grpc::WriteOptions& options) { StartWrite(response, options); },
              [this] { context_.TryCancel(); }, [this] { FlushSoon(); },
              environment.options.response_queue_max),
      arena_(StartingWith(first_block_, sizeof(first_block_))) {
  {
    MutexLock lock(first_limit_->mutex);
    first_limit_->call = this;
  }
  for (int i = 0; i < 4; ++i) {
    tags_[i].call = this;
    tags_[i].operation = static_cast<Operation>(i);
  }
}

SessionCall::~SessionCall() {
  if (seat_ == Seat::kSession) environment_.door.CloseSession(*connection_);
  if (seat_ == Seat::kRefusal) environment_.door.ReturnRefusal();
  MutexLock lock(first_limit_->mutex);
  first_limit_->call = nullptr;
}

void SessionCall::Request(void* tag) {
  context_.AsyncNotifyWhenDone(TagOf(Operation::kDone));
  environment_.service.RequestIfrtSession(&context_, &stream_, environment_.queue,
                                          environment_.queue, tag);
}

void SessionCall::Begin() {
  if (absl::Status status = CheckMetadata(); !status.ok()) return FinishWith(status);
  refused_ = Admit();
  if (!refused_.ok()) return Refuse(refused_);
  seat_ = Seat::kSession;
  thread_ = Thread("ifrt-session", [this] { Serve(); });
}

absl::Status SessionCall::Admit() {
  if (environment_.options.admit) {
    GANGWAY_RETURN_IF_ERROR(environment_.options.admit({.name = name_, .token = token_}));
  }
  return environment_.door.OpenSession(*connection_);
}

void SessionCall::Refuse(const absl::Status& why) {
  refused_ = why;
  if (!environment_.door.TakeRefusal()) return FinishWith(why);
  seat_ = Seat::kRefusal;
  StartFirstRead();
}

void SessionCall::FinishWith(const absl::Status& status) {
  if (life_.BeginFinish()) stream_.Finish(ToGrpc(status), TagOf(Operation::kFinish));
}

void SessionCall::StartFirstRead() {
  environment_.timers.PostAt(Clock::now() + environment_.door.limits().token,
                             [limit = first_limit_] {
                               MutexLock lock(limit->mutex);
                               if (limit->call != nullptr) limit->call->OnFirstLimit();
                             });
  StartRead();
}

void SessionCall::OnFirstLimit() {
  if (!life_.Expire()) return;
  if (seat_ != Seat::kSession) FinishWith(TooLate());
}

absl::Status SessionCall::TooLate() const {
  return absl::DeadlineExceededError(absl::StrCat(
      "no request came on this stream within ", environment_.door.limits().token.count() / 1000,
      " s, the limit of the JAX front door for the first one: connect again"));
}

absl::Status SessionCall::CheckMetadata() {
  proxy::SessionMetadata metadata;
  GANGWAY_RETURN_IF_ERROR(ReadMetadata(context_, kSessionMetadata, metadata));
  const auto& said = metadata.initialization_data().attributes();
  if (auto token = said.find(kTokenAttribute); token != said.end())
    token_ = token->second.string_value();
  // The address of a unix socket's client says nothing.
  name_ = absl::StrCat("jax ", context_.peer());
  if (auto process = said.find(kProcessAttribute);
      process != said.end() && absl::StartsWith(context_.peer(), "unix:"))
    name_ = absl::StrCat("jax, process ", process->second.int64_value());
  return NegotiateVersion(metadata.version(), metadata.version()).status();
}

absl::Status SessionCall::Open() {
  GANGWAY_ASSIGN_OR_RETURN(auto client,
                           environment_.factory({.name = name_, .token = std::move(token_)}));
  const IfrtServerOptions& options = environment_.options;
  auto buffers = std::make_shared<HostBuffers>(options.memory->bytes_max() / 4 * 3,
                                               options.host_buffer_limit, options.memory);
  const uint64_t id = environment_.registry.Add(buffers);
  session_ = std::make_unique<Session>(id, std::move(client), writer_, std::move(buffers),
                                       &environment_.bulk);
  return absl::OkStatus();
}

void SessionCall::Serve() {
  absl::Status status = refused_ = Open();
  StartFirstRead();
  if (life_.WaitForEnd() == StreamLife::Ended::kLate) status = TooLate();
  if (session_ != nullptr) environment_.registry.Remove(session_->id());
  session_.reset();
  writer_.Drain(kDrainLimit);
  FinishWith(status);
}

void SessionCall::StartRead() {
  if (!life_.BeginRead()) return;
  arena_.Reset();
  request_ = google::protobuf::Arena::CreateMessage<IfrtRequest>(&arena_);
  stream_.Read(request_, TagOf(Operation::kRead));
}

void SessionCall::StartWrite(const IfrtResponse& response, const grpc::WriteOptions& options) {
  life_.BeginOperation();
  stream_.Write(response, options, TagOf(Operation::kWrite));
}

// The call of a client that was not admitted.
void SessionCall::AnswerRefusal(bool ok) {
  if (!ok) return FinishWith(refused_);
  if (!life_.BeginFinish()) return;
  stream_.WriteAndFinish(ErrorReply(request_->request_metadata().op_id(), refused_),
                         grpc::WriteOptions(), ToGrpc(refused_), TagOf(Operation::kFinish));
}

void SessionCall::OnRead(bool ok) {
  if (!life_.TakeRead()) return;
  if (seat_ != Seat::kSession) return AnswerRefusal(ok);
  bool room = false;
  if (ok && !refused_.ok()) {
    writer_.Send(ErrorReply(request_->request_metadata().op_id(), refused_), Urgency::kAtOnce);
    ok = false;
  } else if (ok) {
    session_->Handle(*request_);
    room = session_->HasRoomOr([this] { StartRead(); });
  }
  life_.EndRead(ok ? StreamLife::Next::kMore : StreamLife::Next::kNone);
  if (room) StartRead();
}

void SessionCall::Completed(Operation operation, bool ok) {
  switch (operation) {
    case Operation::kRead:
      OnRead(ok);
      break;
    case Operation::kWrite:
      writer_.Written(ok);
      break;
    case Operation::kDone:
      life_.End();
      break;
    case Operation::kFinish:
      life_.Finish();
      break;
  }
  Settle();
}

void SessionCall::FlushSoon() {
  life_.BeginOperation();
  environment_.timers.PostAt(Clock::now() + kSoon, [this] {
    writer_.Flush();
    Settle();
  });
}

void SessionCall::Settle() {
  if (!life_.EndOperation()) return;
  if (thread_.joinable()) thread_.Join();  // it has finished its work
  delete this;
}

}  // namespace gangway::ifrt
