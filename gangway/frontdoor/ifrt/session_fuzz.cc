// Fuzzes a JAX client's requests and host buffers, in any order, on a client library that runs
// nothing: every request gets at most one answer, and the client library gets only calls that its
// contract allows.
//
// The input is pieces (fuzz::Split), each a kind and a body: a request, a host buffer, or a turn of
// the client library.
#include <deque>
#include <map>
#include <random>
#include <utility>

#include "gangway/base/check.h"
#include "gangway/base/clock.h"
#include "gangway/base/fuzz.h"
#include "gangway/base/ids.h"
#include "gangway/frontdoor/ifrt/session.h"
#include "gangway/xla/fuzz_message.h"
#include "gangway/xla/hlo.pb.h"
#include "gangway/xla/ifrt_service.grpc.pb.h"

namespace gangway::ifrt {
namespace {

constexpr uint64_t kHostBytesMax = 1 << 20;
constexpr size_t kNodesMax = 4096;

// Answers in Drain, as the client library does from its loop; arrays hold zeros.
class InertClient final : public Client {
 public:
  InertClient() {
    cluster_.platform = "cpu";
    for (uint32_t i = 0; i < 4; ++i) cluster_.devices.push_back({i, i / 2, 0, i % 2, "cpu"});
    info_.name = "jit_f";
    const TensorSpec tensor{xla::TYPE_U8, {4}, 4, ""};
    info_.parameters = {tensor, tensor};
    info_.results = {tensor};
    info_.donated = {1};
    xla::HloModuleWithConfigProto program;
    program.mutable_module()->set_name("jit_f");
    auto& shape = *program.mutable_module()->mutable_host_program_shape();
    for (xla::ShapeProto* each :
         {shape.add_parameters(), shape.add_parameters(), shape.mutable_result()}) {
      each->set_element_type(xla::TYPE_U8);
      each->add_dimensions(4);
    }
    info_.optimized_program = program.SerializeAsString();
  }
  ~InertClient() override { Drain(); }

  // Callbacks may submit more.
  void Drain() {
    for (size_t i = 0; i < kNodesMax && !turns_.empty(); ++i) {
      auto turn = std::move(turns_.front());
      turns_.pop_front();
      turn();
    }
    turns_.clear();
  }

  const ClusterInfo& cluster() const override { return cluster_; }
  ArrayHandle NewArrayHandle() override { return ArrayHandle(next_++); }
  ExecutableHandle Compile(std::string, std::string, std::string, std::vector<uint32_t> devices,
                           CompileCallback done) override {
    GANGWAY_CHECK(!devices.empty(), "a program has devices");
    for (uint32_t device : devices) CheckDevice(device);
    turns_.emplace_back([this, done] { done(std::make_shared<const ExecutableInfo>(info_)); });
    return ExecutableHandle(next_++);
  }
  void DropExecutables(std::span<const ExecutableHandle>) override {}
  bool reports_ends() const override { return false; }
  void BeginLook() override {}
  void EndLook() override {}
  void LookFor(OperationId) override {}
  uint64_t losses() const override { return 0; }
  OperationId Put(ArrayHandle array, const ArraySpec& spec,
                  std::span<const std::string_view> shards, StatusCallback) override {
    const OperationId upload = Upload(array, spec, nullptr);
    for (uint32_t i = 0; i < shards.size(); ++i) {
      auto copy = std::make_shared<const std::string>(shards[i]);
      Push(upload, i, *copy, [copy] {});
    }
    return upload;
  }
  OperationId Upload(ArrayHandle array, const ArraySpec& spec, StatusCallback) override {
    CheckSpec(spec);
    arrays_[array] = spec;
    const OperationId upload{NumberOf(array)};  // the handle names the upload as well
    uploads_[upload] = spec;
    return upload;
  }
  void Reserve(OperationId, uint32_t, std::function<void(std::shared_ptr<char>)>) override {}
  void Push(OperationId upload, uint32_t shard, std::string_view data,
            std::function<void()> released) override {
    auto found = uploads_.find(upload);
    GANGWAY_CHECK(found != uploads_.end(), "a push is for an upload");
    GANGWAY_CHECK(shard < found->second.devices.size(), "a push is for a shard of its upload");
    GANGWAY_CHECK(data.size() == found->second.shard_bytes, "a push has all bytes of its shard");
    turns_.emplace_back(std::move(released));
  }
  void AbandonUpload(OperationId upload, Status why) override {
    GANGWAY_CHECK(uploads_.contains(upload) && !why.ok(), "an upload is abandoned with a reason");
  }
  OperationId Call(ExecutableHandle, std::span<const ArrayHandle> arguments,
                   std::span<const ArrayHandle> results, CallOptions options) override {
    for (uint32_t index : options.keep)
      GANGWAY_CHECK(index < arguments.size(), "a kept argument exists");
    for (ArrayHandle result : results) arrays_[result] = {xla::TYPE_U8, {4}, {0}, "", 4};
    return OperationId();
  }
  OperationId Copy(std::span<const ArrayHandle> sources, std::span<const ArrayHandle> results,
                   std::span<const uint32_t> devices, const std::string&, StatusCallback) override {
    GANGWAY_CHECK(sources.size() == results.size(), "a copy has a source for each result");
    for (uint32_t device : devices) CheckDevice(device);
    return OperationId();
  }
  void Regroup(std::vector<Regrouped>) override {}
  void Fetch(ArrayHandle, std::vector<uint32_t> shards, FetchSink sink) override {
    turns_.emplace_back([shards, sink] {
      for (size_t i = 0; i < shards.size(); ++i)
        sink.on_data(i, 0, std::string_view("\0\0\0\0", 4));
      sink.on_done(absl::OkStatus());
    });
  }
  void Await(std::span<const ArrayHandle>, StatusCallback done) override {
    turns_.emplace_back([done] { done(absl::OkStatus()); });
  }
  void Drop(std::span<const ArrayHandle>) override {}
  void Delete(std::span<const ArrayHandle>) override {}
  void DropShard(ShardOf, uint32_t) override {}
  void BeginProgram() override {}
  ProgramCapture EndProgram() override { return {}; }
  void SendNow() override {}
  std::shared_ptr<Wait> NewWait() override { return nullptr; }  // the front door has its own waits
  void Poison(std::span<const ArrayHandle>, const Status& why) override {
    GANGWAY_CHECK(!why.ok(), "an array is poisoned with a reason");
  }
  uint64_t pending() const override { return 0; }
  uint64_t pending_max() const override { return 16; }
  void WhenRoom(std::function<void()> on_room) override { turns_.push_back(std::move(on_room)); }
  void Usage(UsageCallback done) override { done(std::vector<DeviceMemory>()); }
  void Profile(ProfileCallback done) override { done(SessionProfile()); }
  void ServeHostCallbacks(HostFunctions /*functions*/) override {}
  void OnLost(StatusCallback) override {}

 private:
  void CheckDevice(uint32_t device) const {
    GANGWAY_CHECK(device < cluster_.devices.size(), "a device of the cluster");
  }
  void CheckSpec(const ArraySpec& spec) const {
    GANGWAY_CHECK(!spec.devices.empty(), "an array has devices");
    for (uint32_t device : spec.devices) CheckDevice(device);
  }

  ClusterInfo cluster_;
  ExecutableInfo info_;
  uint64_t next_ = uint64_t{1} << 62;
  std::map<ArrayHandle, ArraySpec> arrays_;
  std::map<OperationId, ArraySpec> uploads_;
  std::deque<std::function<void()>> turns_;
};

class CountingReplies final : public Replies {
 public:
  void Send(IfrtResponse response, Urgency urgency) override {
    const uint64_t op_id = response.response_metadata().op_id();
    GANGWAY_CHECK(++answers_[op_id] <= 1, "a request is answered once");
  }

 private:
  std::map<uint64_t, int> answers_;
};

void Apply(std::string_view piece, uint64_t op_id, Session& session, HostBuffers& buffers,
           InertClient& client) {
  const std::string_view body = piece.substr(1);
  switch (piece[0] % 4) {
    case 0: {  // a host buffer: its handle in one byte, then its contents
      if (body.empty()) return;
      auto bytes = buffers.TryAllocate(body.size() - 1);
      if (!bytes.ok()) return;
      body.copy((*bytes)->Make(), body.size() - 1, 1);
      (void)buffers.Put(static_cast<unsigned char>(body[0]), HostBytesRef(*std::move(bytes)));
      return;
    }
    case 1:
      return client.Drain();
    default: {
      IfrtRequest request;
      if (!request.ParseFromArray(body.data(), static_cast<int>(body.size()))) return;
      request.mutable_request_metadata()->set_op_id(op_id);  // unique, unlike the input's
      session.Handle(request);
    }
  }
}

std::string Piece(const IfrtRequest& request) { return "\x02" + request.SerializeAsString(); }

void SetArray(xla::IfrtDTypeProto& dtype, xla::IfrtShapeProto& shape,
              xla::IfrtShardingProto& sharding) {
  dtype.set_kind(xla::IfrtDTypeProto::KIND_U8);
  shape.add_dims(4);
  xla::IfrtSingleDeviceShardingProto single;
  single.set_device_id(1);
  sharding.mutable_serialized()->set_type_name("xla::ifrt::SingleDeviceSharding");
  sharding.mutable_serialized()->set_data(single.SerializeAsString());
}

IfrtRequest MakeArrayRequest(uint64_t handle) {
  IfrtRequest request;
  auto& make = *request.mutable_make_array_from_host_buffer();
  SetArray(*make.mutable_dtype(), *make.mutable_shape(), *make.mutable_sharding());
  make.set_host_buffer_handle(handle);
  make.set_array_handle(handle);
  make.mutable_byte_strides()->add_strides(1);
  return request;
}

}  // namespace
}  // namespace gangway::ifrt

namespace gangway::fuzz {

std::vector<std::string> Seeds() {
  using ifrt::IfrtRequest;
  using ifrt::Piece;
  IfrtRequest init;
  init.mutable_init();
  IfrtRequest fetch;
  fetch.mutable_copy_to_host_buffer()->set_array_handle(1);
  fetch.mutable_copy_to_host_buffer()->set_host_buffer_handle(9);
  IfrtRequest compile;
  compile.mutable_compile()->mutable_program()->set_type_name("xla::ifrt::XlaProgram");
  compile.mutable_compile()->mutable_program()->set_data("a program");
  compile.mutable_compile()->mutable_compile_options()->set_type_name(
      "xla::ifrt::XlaCompileOptions");
  IfrtRequest execute;
  execute.mutable_execute()->set_executable_handle(uint64_t{1} << 62);
  execute.mutable_execute()->add_argument_handles(1);
  execute.mutable_execute()->add_argument_handles(2);
  execute.mutable_execute()->add_result_handles(3);
  IfrtRequest keep = execute;  // an argument that it does not have
  keep.mutable_execute()->mutable_options()->add_non_donatable_input_indices(2);
  IfrtRequest regroup;
  regroup.mutable_disassemble()->set_array_handle(1);
  IfrtRequest copy;
  copy.mutable_copy_arrays()->add_array_handles(1);
  copy.mutable_copy_arrays()->add_result_handles(5);
  IfrtRequest destruct;
  destruct.mutable_destruct_array()->add_array_handles(1);
  IfrtRequest repeated = ifrt::MakeArrayRequest(1);  // a byte that stands for 2^30
  repeated.mutable_make_array_from_host_buffer()->mutable_shape()->set_dims(0, 1 << 30);
  repeated.mutable_make_array_from_host_buffer()->mutable_byte_strides()->set_strides(0, 0);
  const std::string buffer =
      "\x04\x01"
      "abcd";
  const std::string turn = "\x01";
  const std::string make = Piece(ifrt::MakeArrayRequest(1));
  return {Join({Piece(init), make, buffer, turn, Piece(fetch), turn, Piece(destruct)}),
          Join({make, Piece(ifrt::MakeArrayRequest(2)), Piece(compile), turn, Piece(execute), turn,
                Piece(keep)}),
          Join({Piece(repeated),
                "\x04\x01"
                "a",
                turn}),
          Join({make, Piece(regroup), Piece(copy), turn, Piece(destruct), turn})};
}

}  // namespace gangway::fuzz

// Mutates one request of the sequence, or duplicates or drops a piece.
size_t LLVMFuzzerCustomMutator(uint8_t* data, size_t size, size_t size_max, unsigned int seed) {
  std::mt19937 random(seed);
  std::vector<std::string> pieces;
  for (std::string_view piece : gangway::fuzz::Split(gangway::fuzz::View(data, size)))
    pieces.emplace_back(piece);
  if (pieces.empty()) pieces.emplace_back("\x02");
  const size_t at = random() % pieces.size();
  std::string& piece = pieces[at];
  const auto choice = random() % 16;
  if (choice == 0) {
    pieces.emplace_back(piece);
  } else if (choice == 1) {
    pieces.erase(pieces.begin() + static_cast<ptrdiff_t>(at));
  } else if (!piece.empty() && piece[0] == 2) {
    piece = "\x02" + gangway::xla::MutatedMessage<gangway::ifrt::IfrtRequest>(
                         std::string_view(piece).substr(1), random);
  } else if (!piece.empty()) {
    piece[random() % piece.size()] = static_cast<char>(random());
  }
  return gangway::fuzz::Join(pieces).copy(reinterpret_cast<char*>(data), size_max);
}

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace gangway::ifrt;
  CountingReplies replies;
  auto shared = std::make_shared<HostBuffers>(kHostBytesMax, std::chrono::milliseconds(0));
  HostBuffers& buffers = *shared;
  auto owned = std::make_unique<InertClient>();
  InertClient& client = *owned;
  Session session(1, std::move(owned), replies, std::move(shared), nullptr);
  uint64_t op_id = 0;
  for (std::string_view piece : gangway::fuzz::Split(gangway::fuzz::View(data, size))) {
    if (!piece.empty()) Apply(piece, ++op_id, session, buffers, client);
  }
  client.Drain();
  buffers.Expire(gangway::Clock::now() + std::chrono::seconds(1));
  return 0;
}
