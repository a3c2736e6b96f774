// Tests the front door from outside: the protocol over gRPC, on a client library that runs nothing
// (fake_client.h).
#include "gangway/frontdoor/ifrt/server.h"

#include <future>
#include <map>
#include <random>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "grpcpp/create_channel.h"
#include "gtest/gtest.h"

#include "gangway/base/status.h"
#include "gangway/frontdoor/ifrt/fake_client.h"
#include "gangway/frontdoor/ifrt/host_buffers.h"
#include "gangway/xla/hlo.pb.h"
#include "gangway/xla/ifrt_service.grpc.pb.h"

namespace gangway::ifrt {
namespace {

namespace proxy = ::xla::ifrt::proxy;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

proxy::Version Version(int protocol, int serdes) {
  proxy::Version version;
  version.set_protocol(protocol);
  version.set_serdes(serdes);
  return version;
}

std::chrono::system_clock::time_point Soon() {
  return std::chrono::system_clock::now() + std::chrono::seconds(20);
}

// A single-threaded client of the protocol.
class Peer {
 public:
  explicit Peer(int port) : Peer(absl::StrCat("127.0.0.1:", port)) {}
  explicit Peer(const std::string& address)
      : stub_(proxy::GrpcIfrtService::NewStub(
            grpc::CreateChannel(address, grpc::InsecureChannelCredentials()))) {
    proxy::SessionMetadata metadata;
    auto& attributes = *metadata.mutable_initialization_data()->mutable_attributes();
    attributes["client_pid"].set_int64_value(4711);
    *metadata.mutable_version() = Version(25, 3);
    context_.AddMetadata("ifrt-proxy-grpc-ifrt-session-metadata-bin", metadata.SerializeAsString());
    context_.set_deadline(Soon());
    stream_ = stub_->IfrtSession(&context_);
    proxy::IfrtRequest init;
    init.mutable_init();
    init_ = Ask(init);
    session_ = init_.init().session_id();
  }
  ~Peer() { context_.TryCancel(); }

  uint64_t Send(proxy::IfrtRequest request) {
    request.mutable_request_metadata()->set_op_id(++op_id_);
    EXPECT_TRUE(stream_->Write(request));
    return op_id_;
  }
  proxy::IfrtResponse Receive(uint64_t op_id) {
    while (!early_.contains(op_id)) {
      proxy::IfrtResponse response;
      if (!stream_->Read(&response)) {
        ADD_FAILURE() << "the stream ended: " << stream_->Finish().error_message();
        return {};
      }
      early_[response.response_metadata().op_id()] = response;
    }
    return early_[op_id];
  }
  proxy::IfrtResponse Ask(const proxy::IfrtRequest& request) { return Receive(Send(request)); }
  bool HasCome(uint64_t op_id) const { return early_.contains(op_id); }

  grpc::Status Store(uint64_t handle, const std::string& bytes, int64_t declared_size = -1) {
    proxy::HostBufferStoreMetadata metadata;
    metadata.set_session_id(session_);
    metadata.set_handle(handle);
    metadata.set_buffer_size(declared_size < 0 ? static_cast<int64_t>(bytes.size())
                                               : declared_size);
    grpc::ClientContext context;
    context.set_deadline(Soon());
    context.AddMetadata("ifrt-proxy-grpc-host-buffer-store-metadata-bin",
                        metadata.SerializeAsString());
    proxy::HostBufferStoreResponse response;
    auto writer = stub_->HostBufferStore(&context, &response);
    const size_t piece = std::max<size_t>(5, bytes.size() / 7);
    for (size_t offset = 0; offset < bytes.size(); offset += piece) {
      proxy::HostBufferStoreRequest chunk;
      chunk.set_data(bytes.substr(offset, piece));
      writer->Write(chunk);
    }
    writer->WritesDone();
    return writer->Finish();
  }

  absl::StatusOr<std::string> Lookup(uint64_t handle) {
    grpc::ClientContext context;
    context.set_deadline(Soon());
    proxy::HostBufferLookupRequest request;
    request.set_session_id(session_);
    request.set_handle(handle);
    auto reader = stub_->HostBufferLookup(&context, request);
    proxy::HostBufferLookupResponse response;
    std::string bytes;
    while (reader->Read(&response)) bytes += response.data();
    grpc::Status status = reader->Finish();
    if (!status.ok())
      return absl::Status(static_cast<absl::StatusCode>(status.error_code()),
                          status.error_message());
    grpc::ClientContext erase;
    erase.set_deadline(Soon());
    proxy::HostBufferDeleteRequest deletion;
    deletion.set_session_id(session_);
    deletion.set_handle(handle);
    proxy::HostBufferDeleteResponse deleted;
    EXPECT_TRUE(stub_->HostBufferDelete(&erase, deletion, &deleted).ok());
    return bytes;
  }

  // Requests the bytes of an array; returns the host buffer in which to look for them.
  absl::StatusOr<uint64_t> BeginFetch(uint64_t array, std::vector<int64_t> strides = {}) {
    proxy::IfrtRequest request;
    auto& copy = *request.mutable_copy_to_host_buffer();
    copy.set_array_handle(array);
    copy.set_host_buffer_handle(++op_id_ + 1000000);
    for (int64_t stride : strides) copy.mutable_byte_strides()->add_strides(stride);
    proxy::IfrtResponse response = Ask(request);
    const auto& status = response.response_metadata().status();
    if (status.code() != 0)
      return absl::Status(static_cast<absl::StatusCode>(status.code()), status.message());
    EXPECT_TRUE(response.has_copy_to_host_buffer());
    return copy.host_buffer_handle();
  }

  // Copies an array to the host, as the client does.
  absl::StatusOr<std::string> Fetch(uint64_t array, std::vector<int64_t> strides = {}) {
    absl::StatusOr<uint64_t> handle = BeginFetch(array, std::move(strides));
    if (!handle.ok()) return handle.status();
    return Lookup(*handle);
  }

  proxy::GrpcIfrtService::Stub& stub() { return *stub_; }
  const gangway::xla::InitResponse& init() const { return init_.init(); }
  const proxy::IfrtResponse& init_response() const { return init_; }

 private:
  std::unique_ptr<proxy::GrpcIfrtService::Stub> stub_;
  grpc::ClientContext context_;
  std::unique_ptr<grpc::ClientReaderWriter<proxy::IfrtRequest, proxy::IfrtResponse>> stream_;
  std::map<uint64_t, proxy::IfrtResponse> early_;
  proxy::IfrtResponse init_;
  uint64_t op_id_ = 0;
  uint64_t session_ = 0;
};

class ServerTest : public ::testing::Test {
 protected:
  ServerTest() {
    server_ = *IfrtServer::Start(
        "127.0.0.1:0",
        [this](const SessionRequest& request) -> absl::StatusOr<std::unique_ptr<Client>> {
          GANGWAY_RETURN_IF_ERROR(refuse_);
          presented_ = request.token;
          return std::make_unique<FakeClient>(cluster_);
        });
  }
  bool WaitForClients(int count) {
    MutexLock lock(cluster_.mutex);
    return cluster_.changed.WaitFor(cluster_.mutex, std::chrono::seconds(20),
                                    [&] { return cluster_.clients_alive == count; });
  }

  FakeCluster cluster_;
  absl::Status refuse_;
  std::string presented_;
  std::unique_ptr<IfrtServer> server_;
};

void SetType(gangway::xla::IfrtDTypeProto& dtype, gangway::xla::IfrtShapeProto& shape,
             std::vector<int64_t> dims) {
  dtype.set_kind(gangway::xla::IfrtDTypeProto::KIND_U8);
  for (int64_t dim : dims) shape.add_dims(dim);
}

gangway::xla::IfrtShardingProto OnDevice(int device) {
  gangway::xla::IfrtSingleDeviceShardingProto proto;
  proto.set_device_id(device);
  proto.set_memory_kind("device");
  gangway::xla::IfrtShardingProto sharding;
  sharding.mutable_serialized()->set_type_name("xla::ifrt::SingleDeviceSharding");
  sharding.mutable_serialized()->set_data(proto.SerializeAsString());
  return sharding;
}

gangway::xla::IfrtShardingProto Split(int devices) {
  gangway::xla::IfrtHloShardingProto proto;
  for (int i = 0; i < devices; ++i) proto.mutable_devices()->add_device_ids(i);
  proto.mutable_op_sharding()->set_type(gangway::xla::OpShardingProto::TYPE_OTHER);
  proto.mutable_op_sharding()->add_tile_assignment_dimensions(devices);
  proto.mutable_op_sharding()->add_iota_reshape_dims(devices);
  proto.mutable_op_sharding()->add_iota_transpose_perm(0);
  gangway::xla::IfrtShardingProto sharding;
  sharding.mutable_serialized()->set_type_name("xla::ifrt::HloSharding");
  sharding.mutable_serialized()->set_data(proto.SerializeAsString());
  return sharding;
}

proxy::IfrtRequest Put(uint64_t handle, std::vector<int64_t> dims,
                       std::vector<int64_t> strides = {}) {
  proxy::IfrtRequest request;
  auto& make = *request.mutable_make_array_from_host_buffer();
  SetType(*make.mutable_dtype(), *make.mutable_shape(), std::move(dims));
  *make.mutable_sharding() = OnDevice(1);
  make.set_host_buffer_handle(handle);
  make.set_array_handle(handle);
  for (int64_t stride : strides) make.mutable_byte_strides()->add_strides(stride);
  return request;
}

proxy::IfrtRequest PutSplit(uint64_t array, std::vector<uint64_t> buffers, int64_t shard_size) {
  proxy::IfrtRequest request;
  auto& make = *request.mutable_make_arrays_from_host_buffer_shards();
  make.add_array_handles(array);
  auto& spec = *make.add_specs();
  SetType(*spec.mutable_array_spec()->mutable_dtype(), *spec.mutable_array_spec()->mutable_shape(),
          {shard_size * static_cast<int64_t>(buffers.size())});
  *spec.mutable_array_spec()->mutable_sharding() = Split(static_cast<int>(buffers.size()));
  for (size_t i = 0; i < buffers.size(); ++i) {
    auto& buffer = *spec.add_host_buffers();
    SetType(*buffer.mutable_dtype(), *buffer.mutable_shape(), {shard_size});
    buffer.set_host_buffer_handle(buffers[i]);
    spec.add_shard_indices()->add_indices(static_cast<int64_t>(i));
  }
  return request;
}

int Code(const proxy::IfrtResponse& response) {
  return response.response_metadata().status().code();
}
std::string Message(const proxy::IfrtResponse& response) {
  return response.response_metadata().status().message();
}

TEST_F(ServerTest, NegotiatesVersions) {
  auto stub = proxy::GrpcIfrtService::NewStub(grpc::CreateChannel(
      absl::StrCat("127.0.0.1:", server_->port()), grpc::InsecureChannelCredentials()));
  const auto ask = [&](int min, int max, int serdes, proxy::GetVersionResponse& response) {
    grpc::ClientContext context;
    context.set_deadline(Soon());
    proxy::GetVersionRequest request;
    *request.mutable_min_version() = Version(min, 0);
    *request.mutable_max_version() = Version(max, serdes);
    return stub->GetVersion(&context, request, &response);
  };
  proxy::GetVersionResponse response;
  ASSERT_TRUE(ask(16, 25, 3, response).ok());
  EXPECT_EQ(response.version().protocol(), 25);
  EXPECT_EQ(response.version().serdes(), 3);  // the client's newest
  ASSERT_TRUE(ask(15, 19, 0, response).ok());
  EXPECT_EQ(response.version().protocol(), 19);
  ASSERT_TRUE(ask(20, 99, 7, response).ok());
  EXPECT_EQ(response.version().protocol(), 25);
  grpc::Status old = ask(3, 15, 0, response);
  EXPECT_EQ(old.error_code(), grpc::StatusCode::FAILED_PRECONDITION);
  EXPECT_THAT(old.error_message(), HasSubstr("versions 3 to 15"));
  EXPECT_FALSE(ask(26, 30, 0, response).ok());
}

TEST_F(ServerTest, InitTellsTheCluster) {
  Peer peer(server_->port());
  const auto& init = peer.init();
  EXPECT_EQ(init.platform_name(), "cpu");
  ASSERT_EQ(init.all_devices_size(), 4);
  EXPECT_EQ(init.all_devices(3).id(), 3);
  EXPECT_EQ(init.all_devices(3).attributes().attributes().at("slice_index").int64_value(), 1);
  EXPECT_EQ(init.process_index(), 0u);
  EXPECT_EQ(init.memories_size(), 12);
  EXPECT_EQ(init.memories(0).kind(), "device");
  EXPECT_EQ(init.all_devices(1).default_memory_id(), init.memories(3).id());
  EXPECT_TRUE(init.client_attributes().attributes().at("serialize_with_sdy").bool_value());
}

TEST_F(ServerTest, RefusedSessionSaysWhy) {
  refuse_ = absl::UnavailableError("workers island0/worker1 are absent");
  Peer peer(server_->port());
  EXPECT_EQ(Code(peer.init_response()), 14);
  EXPECT_THAT(Message(peer.init_response()), HasSubstr("island0/worker1"));
}

TEST_F(ServerTest, BytesBeforeAndAfterTheirRequest) {
  Peer peer(server_->port());
  ASSERT_TRUE(peer.Store(1, "hello, early bytes").ok());
  EXPECT_EQ(peer.Ask(Put(1, {18})).make_array_from_host_buffer().array_handle(), 1u);
  EXPECT_EQ(*peer.Fetch(1), "hello, early bytes");

  EXPECT_TRUE(
      peer.Ask(Put(2, {4})).has_make_array_from_host_buffer());  // answered before any byte arrives
  proxy::IfrtRequest ready;
  ready.mutable_check_value_ready()->add_value_handles(2);
  const uint64_t waiting = peer.Send(ready);
  EXPECT_EQ(*peer.Fetch(1), "hello, early bytes");  // not delayed by it
  EXPECT_FALSE(peer.HasCome(waiting));
  ASSERT_TRUE(peer.Store(2, "late").ok());
  EXPECT_TRUE(peer.Receive(waiting).has_check_value_ready());
  EXPECT_EQ(*peer.Fetch(2), "late");
}

// TM-2: a stride of 0 expands one byte to an array of any size, which is charged before it is
// allocated.
TEST_F(ServerTest, RepeatedBytesThatNoMemoryHoldsAreRefused) {
  Peer peer(server_->port());
  ASSERT_TRUE(peer.Store(1, "a").ok());
  peer.Ask(Put(1, {int64_t{1} << 45}, {0}));
  proxy::IfrtRequest ready;
  ready.mutable_check_value_ready()->add_value_handles(1);
  EXPECT_EQ(Code(peer.Ask(ready)), static_cast<int>(absl::StatusCode::kResourceExhausted));
  ASSERT_TRUE(peer.Store(2, "b").ok());  // the session goes on, and expands what fits
  peer.Ask(Put(2, {3}, {0}));
  EXPECT_EQ(*peer.Fetch(2), "bbb");
}

TEST_F(ServerTest, StridesBothWays) {
  Peer peer(server_->port());
  ASSERT_TRUE(peer.Store(1, "acebdf").ok());
  peer.Ask(Put(1, {3, 2}, {1, 3}));
  EXPECT_EQ(*peer.Fetch(1), "abcdef");
  EXPECT_EQ(*peer.Fetch(1, {1, 3}), "acebdf");
  EXPECT_EQ(*peer.Fetch(1, {-2, -1}), "fedcba");
  EXPECT_EQ(peer.Fetch(1, {int64_t{1} << 40, 1}).status().code(),
            absl::StatusCode::kInvalidArgument);
}

TEST_F(ServerTest, ListensAtASocketFileToo) {
  const std::string path = absl::StrCat("/tmp/gangway-front-door-", getpid());
  Mutex mutex;
  std::vector<std::string> names;
  auto server = IfrtServer::Start(
      "127.0.0.1:0",
      [&](const SessionRequest& request) -> absl::StatusOr<std::unique_ptr<Client>> {
        MutexLock lock(mutex);
        names.push_back(request.name);
        return std::make_unique<FakeClient>(cluster_);
      },
      {.socket_path = path});
  ASSERT_TRUE(server.ok()) << server.status();
  for (const std::string& address :
       {absl::StrCat("unix:", path), absl::StrCat("127.0.0.1:", (*server)->port())}) {
    Peer peer(address);
    EXPECT_EQ(peer.init().all_devices_size(), 4) << address;
  }
  server->reset();
  ASSERT_EQ(names.size(), 2u);
  EXPECT_EQ(names[0], "jax, process 4711");
  EXPECT_THAT(names[1], ::testing::StartsWith("jax ipv4:127.0.0.1:"));
}

// So the lookup travels while the bytes are made.
TEST_F(ServerTest, AFetchOfASmallArrayIsAnsweredBeforeItsBytes) {
  Peer peer(server_->port());
  peer.Ask(Put(1, {4}));
  peer.Ask(Put(2, {4}));
  absl::StatusOr<uint64_t> good = peer.BeginFetch(1), bad = peer.BeginFetch(2);
  ASSERT_TRUE(good.ok() && bad.ok());
  auto lookup = std::async(std::launch::async, [&] { return peer.Lookup(*good); });
  auto failing = std::async(std::launch::async, [&] { return peer.Lookup(*bad); });
  ASSERT_TRUE(peer.Store(1, "late").ok());
  EXPECT_FALSE(peer.Store(2, "abc", 4).ok());
  EXPECT_EQ(*lookup.get(), "late");
  EXPECT_EQ(failing.get().status().code(), absl::StatusCode::kDataLoss);
}

TEST_F(ServerTest, BytesAreThereBeforeTheCallThatBringsThemEnds) {
  Peer peer(server_->port());
  peer.Ask(Put(1, {4}));
  proxy::HostBufferStoreMetadata metadata;
  metadata.set_session_id(peer.init().session_id());
  metadata.set_handle(1);
  metadata.set_buffer_size(4);
  grpc::ClientContext context;
  context.set_deadline(Soon());
  context.AddMetadata("ifrt-proxy-grpc-host-buffer-store-metadata-bin",
                      metadata.SerializeAsString());
  proxy::HostBufferStoreResponse response;
  auto writer = peer.stub().HostBufferStore(&context, &response);
  proxy::HostBufferStoreRequest chunk;
  chunk.set_data("data");
  EXPECT_TRUE(writer->Write(chunk));
  EXPECT_EQ(*peer.Fetch(1), "data");
  chunk.clear_data();
  EXPECT_TRUE(writer->Write(chunk));
  chunk.set_data("more");
  EXPECT_TRUE(writer->Write(chunk));
  EXPECT_EQ(writer->Finish().error_code(), grpc::StatusCode::INVALID_ARGUMENT);
}

// gRPC carries the error of a lookup in a header of 8 KiB, where a line break takes three bytes.
TEST_F(ServerTest, ALongErrorOfAFetchArrivesCut) {
  Peer peer(server_->port());
  proxy::IfrtRequest request;
  auto& made = *request.mutable_make_error_arrays();
  made.add_array_handles(1);
  auto& array = *made.add_array_specs();
  const proxy::IfrtRequest like = Put(1, {4});
  *array.mutable_dtype() = like.make_array_from_host_buffer().dtype();
  *array.mutable_shape() = like.make_array_from_host_buffer().shape();
  *array.mutable_sharding() = like.make_array_from_host_buffer().sharding();
  made.mutable_error()->set_code(static_cast<gangway::xla::StatusCode>(8));
  made.mutable_error()->set_message("out of memory" + std::string(50000, '\n'));
  peer.Ask(request);
  const absl::Status error = peer.Fetch(1).status();
  EXPECT_EQ(error.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(error.message()), HasSubstr("out of memory"));
  EXPECT_THAT(std::string(error.message()), HasSubstr("[cut]"));
}

TEST_F(ServerTest, AFetchBeyondThoseAnnouncedIsAnsweredWithItsBytes_TM_2) {
  Peer peer(server_->port());
  peer.Ask(Put(1, {4}));
  for (size_t i = 0; i < kAnnouncedMax; ++i) ASSERT_TRUE(peer.BeginFetch(1).ok());
  auto late = std::async(std::launch::async, [&] { return peer.Fetch(1); });
  ASSERT_TRUE(peer.Store(1, "late").ok());
  EXPECT_EQ(*late.get(), "late");
}

TEST_F(ServerTest, ALookupThatWaitsEndsWithTheServer) {
  Peer peer(server_->port());
  peer.Ask(Put(1, {4}));
  absl::StatusOr<uint64_t> handle = peer.BeginFetch(1);
  ASSERT_TRUE(handle.ok());
  auto lookup = std::async(std::launch::async, [&] { return peer.Lookup(*handle); });
  server_.reset();
  EXPECT_FALSE(lookup.get().ok());
}

TEST_F(ServerTest, EmptyArray) {
  Peer peer(server_->port());
  peer.Ask(Put(1, {0, 3}, {3, 1}));
  EXPECT_EQ(*peer.Fetch(1), "");
}

TEST_F(ServerTest, AnUploadWithoutRoomSpoilsItsArrayAndTheSessionGoesOn_TM_2) {
  auto memory = std::make_shared<MemoryBudget>("the head", "--head-memory", 16);
  auto server =
      *IfrtServer::Start("127.0.0.1:0",
                         [this](const SessionRequest&) -> absl::StatusOr<std::unique_ptr<Client>> {
                           return std::make_unique<FakeClient>(cluster_);
                         },
                         {.memory = memory});
  Peer peer(server->port());
  peer.Ask(Put(1, {13}));  // a session may hold 12
  EXPECT_TRUE(peer.Store(1, "more than one").ok()) << "its failure would end jaxlib's session";
  const absl::Status refused = peer.Fetch(1).status();
  EXPECT_EQ(refused.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(refused.message()), HasSubstr("13 bytes does not fit"));
  peer.Ask(Put(2, {3}));
  EXPECT_TRUE(peer.Store(2, "abc").ok());
  EXPECT_EQ(*peer.Fetch(2), "abc");
}

TEST_F(ServerTest, BadUploadsSpoilTheirArray) {
  Peer peer(server_->port());
  peer.Ask(Put(1, {4}));
  EXPECT_FALSE(peer.Store(1, "abc", 4).ok());  // ends early
  EXPECT_EQ(peer.Fetch(1).status().code(), absl::StatusCode::kDataLoss);
  peer.Ask(Put(2, {4}));
  EXPECT_TRUE(peer.Store(2, "abcdef").ok());  // more than the shape needs
  EXPECT_EQ(peer.Fetch(2).status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_FALSE(peer.Store(3, "abcdefgh", 4).ok());
}

std::string Pattern(size_t size) {
  std::string bytes(size, '\0');
  for (size_t i = 0; i < size; ++i) bytes[i] = static_cast<char>(i * 7 + i / 251);
  return bytes;
}

TEST_F(ServerTest, AnotherLayoutIsRefused) {
  Peer peer(server_->port());
  ASSERT_TRUE(peer.Store(1, "abcdef").ok());
  proxy::IfrtRequest request = Put(1, {2, 3});
  gangway::xla::IfrtCompactLayoutProto columns;
  columns.add_major_to_minor(1);
  columns.add_major_to_minor(0);
  auto& layout = *request.mutable_make_array_from_host_buffer()->mutable_layout();
  layout.mutable_serialized()->set_type_name("xla::ifrt::CompactLayout");
  layout.mutable_serialized()->set_data(columns.SerializeAsString());
  const proxy::IfrtResponse response = peer.Ask(request);
  EXPECT_EQ(Code(response), 12);
  EXPECT_THAT(Message(response), HasSubstr("layout {0,1} is not the row-major {1,0}"));
  EXPECT_EQ(peer.Fetch(1).status().code(), absl::StatusCode::kUnimplemented);
}

TEST_F(ServerTest, LargeBytesAreWrittenWhereTheyAreWanted) {
  Peer peer(server_->port());
  for (size_t size : {kPlacedBytesMin, size_t{3} << 20, (size_t{9} << 20) + 1}) {
    const uint64_t handle = size;
    const int before = cluster_.placed;
    peer.Ask(Put(handle, {static_cast<int64_t>(size)}));
    {
      MutexLock lock(cluster_.mutex);
      ASSERT_TRUE(cluster_.changed.WaitFor(cluster_.mutex, std::chrono::seconds(20),
                                           [&] { return cluster_.placed > before; }));
    }
    ASSERT_TRUE(peer.Store(handle, Pattern(size)).ok());
    auto bytes = peer.Fetch(handle);
    ASSERT_TRUE(bytes.ok()) << bytes.status();
    EXPECT_TRUE(*bytes == Pattern(size));
  }
  EXPECT_EQ(cluster_.pushed_in_place, 3);
}

TEST_F(ServerTest, LargeBytesBeforeTheirRequestAreKept) {
  Peer peer(server_->port());
  const size_t size = size_t{9} << 20;
  ASSERT_TRUE(peer.Store(1, Pattern(size)).ok());
  peer.Ask(Put(1, {static_cast<int64_t>(size)}));
  auto bytes = peer.Fetch(1);
  ASSERT_TRUE(bytes.ok()) << bytes.status();
  EXPECT_TRUE(*bytes == Pattern(size));
  EXPECT_EQ(cluster_.pushed_in_place, 0);
}

TEST_F(ServerTest, LargeBytesThatEndEarlyOrAreTooManySpoilTheirArray) {
  Peer peer(server_->port());
  const int64_t size = int64_t{1} << 20;
  peer.Send(Put(1, {size}));
  EXPECT_FALSE(peer.Store(1, Pattern(size - 9), size).ok());
  EXPECT_FALSE(peer.Fetch(1).ok());
  peer.Send(Put(2, {size}));
  EXPECT_FALSE(peer.Store(2, Pattern(size + 9), size).ok());
  EXPECT_FALSE(peer.Fetch(2).ok());
}

TEST_F(ServerTest, ShardedArrayInPieces) {
  Peer peer(server_->port());
  EXPECT_EQ(Code(peer.Ask(PutSplit(10, {1, 2}, 3))), 0);
  ASSERT_TRUE(peer.Store(2, "def").ok());
  ASSERT_TRUE(peer.Store(1, "abc").ok());
  EXPECT_EQ(peer.Fetch(10).status().code(), absl::StatusCode::kInvalidArgument);  // only its shards

  proxy::IfrtRequest request;
  request.mutable_disassemble()->set_array_handle(10);
  request.mutable_disassemble()->add_result_handles(11);
  request.mutable_disassemble()->add_result_handles(12);
  EXPECT_THAT(peer.Ask(request).disassemble().array_handles(), ElementsAre(11, 12));
  EXPECT_EQ(*peer.Fetch(11), "abc");
  EXPECT_EQ(*peer.Fetch(12), "def");

  proxy::IfrtRequest assemble;
  auto& body = *assemble.mutable_assemble_array();
  SetType(*body.mutable_dtype(), *body.mutable_shape(), {6});
  *body.mutable_sharding() = Split(2);
  body.add_single_device_array_handles(11);
  body.add_single_device_array_handles(12);
  body.set_result_handle(13);
  EXPECT_EQ(peer.Ask(assemble).assemble_array().array_handle(), 13u);
  body.set_single_device_array_handles(0, 12);  // the shard of another device
  body.set_result_handle(14);
  EXPECT_EQ(Code(peer.Ask(assemble)), 3);
  EXPECT_FALSE(peer.Fetch(14).ok());
}

TEST_F(ServerTest, RemapPermutesShards) {
  Peer peer(server_->port());
  peer.Ask(PutSplit(10, {1, 2}, 3));
  ASSERT_TRUE(peer.Store(1, "abc").ok());
  ASSERT_TRUE(peer.Store(2, "def").ok());
  proxy::IfrtRequest request;
  auto& remap = *request.mutable_remap_arrays();
  remap.add_array_handles(10);
  auto& plan = *remap.mutable_plan();
  for (int device : {0, 1}) {
    auto& spec = *plan.add_output_specs();
    SetType(*spec.mutable_dtype(), *spec.mutable_shape(), {3});
    *spec.mutable_sharding() = OnDevice(device);
    auto& mapping = *plan.add_mappings();
    mapping.set_out_array(device);
    mapping.add_from_start(device);
    mapping.add_from_end(device + 1);
    mapping.add_from_step(1);
    mapping.add_to_start(0);
    mapping.add_to_end(1);
    mapping.add_to_step(1);
    remap.add_result_handles(20 + static_cast<uint64_t>(device));
  }
  EXPECT_THAT(peer.Ask(request).remap_arrays().array_handles(), ElementsAre(20, 21));
  EXPECT_EQ(*peer.Fetch(20), "abc");
  EXPECT_EQ(*peer.Fetch(21), "def");
  plan.mutable_mappings(0)->set_from_start(0, 1);  // device 1's shard to device 0
  plan.mutable_mappings(0)->set_from_end(0, 2);
  remap.set_result_handles(0, 30);
  remap.set_result_handles(1, 31);
  EXPECT_EQ(Code(peer.Ask(request)), 3);
}

gangway::xla::IfrtShardingProto Everywhere(std::vector<int> devices) {
  gangway::xla::IfrtHloShardingProto proto;
  for (int device : devices) proto.mutable_devices()->add_device_ids(device);
  proto.mutable_op_sharding()->set_type(gangway::xla::OpShardingProto::TYPE_REPLICATED);
  gangway::xla::IfrtShardingProto sharding;
  sharding.mutable_serialized()->set_type_name("xla::ifrt::HloSharding");
  sharding.mutable_serialized()->set_data(proto.SerializeAsString());
  return sharding;
}

// Reshards array `from`, of six bytes, to array `to`.
proxy::IfrtRequest Reshard(uint64_t from, uint64_t to,
                           const gangway::xla::IfrtShardingProto& sharding) {
  proxy::IfrtRequest request;
  auto& reshard = *request.mutable_reshard_arrays();
  reshard.add_array_handles(from);
  reshard.add_result_handles(to);
  auto& spec = *reshard.add_array_specs();
  SetType(*spec.mutable_dtype(), *spec.mutable_shape(), {6});
  *spec.mutable_sharding() = sharding;
  return request;
}

TEST_F(ServerTest, ReshardFindsEachPart) {
  Peer peer(server_->port());
  peer.Ask(PutSplit(10, {1, 2}, 3));
  ASSERT_TRUE(peer.Store(1, "abc").ok());
  ASSERT_TRUE(peer.Store(2, "def").ok());
  gangway::xla::IfrtShardingProto swapped = Split(2);
  gangway::xla::IfrtHloShardingProto proto;
  ASSERT_TRUE(proto.ParseFromString(swapped.serialized().data()));
  proto.mutable_op_sharding()->clear_iota_reshape_dims();
  proto.mutable_op_sharding()->clear_iota_transpose_perm();
  proto.mutable_op_sharding()->add_tile_assignment_devices(1);
  proto.mutable_op_sharding()->add_tile_assignment_devices(0);
  swapped.mutable_serialized()->set_data(proto.SerializeAsString());
  EXPECT_THAT(peer.Ask(Reshard(10, 11, swapped)).reshard_arrays().array_handles(), ElementsAre(11));
  proxy::IfrtRequest request;
  request.mutable_disassemble()->set_array_handle(11);
  request.mutable_disassemble()->add_result_handles(12);
  request.mutable_disassemble()->add_result_handles(13);
  peer.Ask(request);
  EXPECT_EQ(*peer.Fetch(12), "def");
  EXPECT_EQ(*peer.Fetch(13), "abc");

  const proxy::IfrtResponse refused = peer.Ask(Reshard(10, 14, Everywhere({0, 1})));
  EXPECT_EQ(Code(refused), 12) << "two halves are not one whole";
  EXPECT_THAT(Message(refused), HasSubstr("out_shardings"));
  EXPECT_EQ(peer.Fetch(14).status().code(), absl::StatusCode::kUnimplemented);
}

TEST_F(ServerTest, ReshardToMoreReplicasThanThereAre) {
  Peer peer(server_->port());
  ASSERT_TRUE(peer.Store(1, "abcdef").ok());
  peer.Ask(Put(1, {6}));
  EXPECT_EQ(Code(peer.Ask(Reshard(1, 2, Everywhere({0, 1, 2})))), 0);
  EXPECT_EQ(*peer.Fetch(2), "abcdef");
  proxy::IfrtRequest request;
  request.mutable_disassemble()->set_array_handle(2);
  for (uint64_t handle : {3, 4, 5}) request.mutable_disassemble()->add_result_handles(handle);
  peer.Ask(request);
  for (uint64_t handle : {3, 4, 5}) EXPECT_EQ(*peer.Fetch(handle), "abcdef");
  EXPECT_EQ(Code(peer.Ask(Reshard(77, 6, Everywhere({0})))), 3);
}

TEST_F(ServerTest, CopyDeleteAndDestruct) {
  Peer peer(server_->port());
  ASSERT_TRUE(peer.Store(1, "abcd").ok());
  peer.Ask(Put(1, {4}));
  proxy::IfrtRequest copy;
  copy.mutable_copy_arrays()->add_array_handles(1);
  copy.mutable_copy_arrays()->add_device_ids(3);
  copy.mutable_copy_arrays()->add_result_handles(2);
  EXPECT_THAT(peer.Ask(copy).copy_arrays().array_handles(), ElementsAre(2));
  EXPECT_EQ(*peer.Fetch(2), "abcd");
  copy.mutable_copy_arrays()->set_device_ids(0, 77);
  copy.mutable_copy_arrays()->set_result_handles(0, 3);
  EXPECT_EQ(Code(peer.Ask(copy)), 3);

  proxy::IfrtRequest request;
  request.mutable_delete_array()->add_array_handles(1);
  request.mutable_delete_array()->add_array_handles(999);
  const uint64_t future = peer.Ask(request).delete_array().deletion_future_handle();
  proxy::IfrtRequest check;
  check.mutable_check_future()->set_future_handle(future);
  EXPECT_TRUE(peer.Ask(check).has_check_future());
  proxy::IfrtRequest deleted;
  deleted.mutable_is_array_deleted()->set_array_handle(1);
  EXPECT_TRUE(peer.Ask(deleted).is_array_deleted().deleted());
  EXPECT_EQ(peer.Fetch(1).status().code(), absl::StatusCode::kFailedPrecondition);

  proxy::IfrtRequest destruct;
  for (uint64_t handle : {1, 2, 3, 12345})
    destruct.mutable_destruct_array()->add_array_handles(handle);
  EXPECT_TRUE(peer.Ask(destruct).has_destruct_array());
  proxy::IfrtRequest ready;  // a round trip through the client library, after the drop
  ready.mutable_check_value_ready();
  EXPECT_TRUE(peer.Ask(ready).has_check_value_ready());
  EXPECT_EQ(cluster_.arrays_alive, 0);
}

// ER-1: the error of a refused request names it, and the request's results carry that error.
TEST_F(ServerTest, ER1_RefusalsNameTheRequestAndSpoilResults) {
  Peer peer(server_->port());
  proxy::IfrtRequest request;
  request.mutable_bitcast_arrays()->add_result_handles(5);
  proxy::IfrtResponse response = peer.Ask(request);
  EXPECT_EQ(Code(response), 12);
  EXPECT_THAT(Message(response), HasSubstr("'bitcast_arrays' (number 34)"));
  absl::Status later = peer.Fetch(5).status();
  EXPECT_EQ(later.code(), absl::StatusCode::kUnimplemented);
  EXPECT_THAT(std::string(later.message()), HasSubstr("bitcast_arrays"));
  proxy::IfrtRequest poll;
  poll.mutable_host_callback_poll();
  EXPECT_EQ(Code(peer.Ask(poll)), 12);
  EXPECT_EQ(Code(peer.Ask(proxy::IfrtRequest())), 12);
}

gangway::xla::ShapeProto U8(std::vector<int64_t> dims) {
  gangway::xla::ShapeProto shape;
  shape.set_element_type(gangway::xla::TYPE_U8);
  for (int64_t dim : dims) shape.add_dimensions(dim);
  return shape;
}

// f(x: u8[8] split over 2, donated) -> u8[8] split over 2
ExecutableInfo Identity() {
  gangway::xla::HloModuleWithConfigProto program;
  program.mutable_config()->set_num_partitions(2);
  auto& module = *program.mutable_module();
  module.set_name("jit_f");
  *module.mutable_host_program_shape()->add_parameters() = U8({4});
  *module.mutable_host_program_shape()->mutable_result() = U8({4});
  gangway::xla::IfrtHloShardingProto split;
  split.ParseFromString(Split(2).serialized().data());
  *module.add_spmd_parameters_shardings() = split.op_sharding();
  *module.mutable_spmd_output_sharding() = split.op_sharding();
  ExecutableInfo info;
  info.name = "jit_f";
  info.parameters = info.results = {TensorSpec{gangway::xla::TYPE_U8, {4}, 4, ""}};
  info.donated = {0};
  info.temp_bytes = 99;
  info.cost = {{"flops", 8.0}};
  info.optimized_program = program.SerializeAsString();
  return info;
}

proxy::IfrtRequest CompileRequest() {
  proxy::IfrtRequest request;
  auto& compile = *request.mutable_compile();
  compile.mutable_program()->set_type_name("xla::ifrt::XlaProgram");
  compile.mutable_program()->set_data("module {}");
  gangway::xla::IfrtXlaCompileOptionsProto options;
  auto& build = *options.mutable_compile_options()->mutable_executable_build_options();
  build.set_num_partitions(2);
  build.mutable_device_assignment()->set_replica_count(1);
  build.mutable_device_assignment()->set_computation_count(2);
  for (int64_t device : {0, 1})
    build.mutable_device_assignment()->add_computations()->add_replica_device_ids(device);
  compile.mutable_compile_options()->set_type_name("xla::ifrt::XlaCompileOptions");
  compile.mutable_compile_options()->set_data(options.SerializeAsString());
  return request;
}

TEST_F(ServerTest, CompileAndExecute) {
  {
    MutexLock lock(cluster_.mutex);
    cluster_.executable = Identity();
    cluster_.compile_held = true;
  }
  Peer peer(server_->port());
  const uint64_t compiling = peer.Send(CompileRequest());
  peer.Ask(PutSplit(10, {1, 2}, 4));  // other requests overtake a compile
  ASSERT_TRUE(peer.Store(1, "abcd").ok());
  ASSERT_TRUE(peer.Store(2, "efgh").ok());
  EXPECT_FALSE(peer.HasCome(compiling));
  {
    MutexLock lock(cluster_.mutex);
    cluster_.compile_held = false;
  }
  auto compiled = peer.Receive(compiling).compile();
  EXPECT_EQ(compiled.name(), "jit_f");
  EXPECT_THAT(compiled.device_ids(), ElementsAre(0, 1));

  proxy::IfrtRequest request;
  request.mutable_executable_metadata()->set_executable_handle(compiled.executable_handle());
  auto metadata = peer.Ask(request).executable_metadata();
  EXPECT_EQ(metadata.parameter_shardings().shardings_size(), 1);
  EXPECT_EQ(metadata.output_shardings().shardings(0).tile_assignment_dimensions(0), 2);
  EXPECT_THAT(metadata.donated_inputs_list().indices(), ElementsAre(0));
  EXPECT_EQ(metadata.output_memory_kinds().lists(0).memory_kinds(0), "device");
  ASSERT_EQ(metadata.parameter_layouts_list().layouts_size(), 1);
  EXPECT_THAT(metadata.parameter_layouts_list().layouts(0).minor_to_major(), ElementsAre(0));
  ASSERT_EQ(metadata.output_layouts_list().layouts_size(), 1);
  EXPECT_THAT(metadata.output_layouts_list().layouts(0).minor_to_major(), ElementsAre(0));
  EXPECT_EQ(metadata.memory_stats_value().temporary_bytes(), 99);

  proxy::IfrtRequest execute;
  execute.mutable_execute()->set_executable_handle(compiled.executable_handle());
  execute.mutable_execute()->add_argument_handles(10);
  execute.mutable_execute()->mutable_options()->add_non_donatable_input_indices(0);
  auto first = peer.Ask(execute).execute();
  ASSERT_EQ(first.outputs_size(), 1);
  EXPECT_THAT(first.outputs(0).shape().dims(), ElementsAre(8));  // global
  EXPECT_GE(first.outputs(0).array_handle(), uint64_t{1} << 62);

  execute.mutable_execute()->mutable_options()->clear_non_donatable_input_indices();
  execute.mutable_execute()->mutable_options()->set_fill_status(true);
  execute.mutable_execute()->add_result_handles(20);
  execute.mutable_execute()->set_status_handle(21);
  auto second = peer.Ask(execute).execute();
  EXPECT_EQ(second.outputs_size(), 0);
  proxy::IfrtRequest outcome;
  outcome.mutable_fetch_execute_result()->set_status_handle(21);
  EXPECT_TRUE(peer.Ask(outcome).has_fetch_execute_result());
  proxy::IfrtRequest deleted;  // donated by the second call, not by the first
  deleted.mutable_is_array_deleted()->set_array_handle(10);
  EXPECT_TRUE(peer.Ask(deleted).is_array_deleted().deleted());

  execute.mutable_execute()->set_result_handles(0, 22);
  execute.mutable_execute()->mutable_options()->add_non_donatable_input_indices(1);
  proxy::IfrtResponse refused = peer.Ask(execute);
  EXPECT_EQ(Code(refused), 3);
  EXPECT_THAT(Message(refused), HasSubstr("argument 1 of an execution"));
  execute.mutable_execute()->mutable_options()->clear_non_donatable_input_indices();

  proxy::IfrtRequest cost;
  cost.mutable_executable_cost()->set_executable_handle(compiled.executable_handle());
  EXPECT_EQ(peer.Ask(cost).executable_cost().attributes().attributes().at("flops").float_value(),
            8.0f);
  proxy::IfrtRequest text;
  text.mutable_executable_text()->set_executable_handle(compiled.executable_handle());
  EXPECT_THAT(peer.Ask(text).executable_text().text(), HasSubstr("HloModule jit_f"));

  proxy::IfrtRequest destruct;
  destruct.mutable_executable_destruct()->set_executable_handle(compiled.executable_handle());
  EXPECT_TRUE(peer.Ask(destruct).has_executable_destruct());
  execute.mutable_execute()->set_result_handles(0, 30);
  EXPECT_EQ(Code(peer.Ask(execute)), 5);
  EXPECT_EQ(peer.Fetch(30).status().code(), absl::StatusCode::kNotFound);
}

TEST_F(ServerTest, CompileErrors) {
  Peer peer(server_->port());
  proxy::IfrtResponse response = peer.Ask(CompileRequest());
  EXPECT_EQ(Code(response), 3);
  EXPECT_THAT(Message(response), HasSubstr("no program"));
  proxy::IfrtRequest callbacks = CompileRequest();
  callbacks.mutable_compile()->add_host_callbacks("f");
  EXPECT_EQ(Code(peer.Ask(callbacks)), 12);
  proxy::IfrtRequest plugin = CompileRequest();
  plugin.mutable_compile()->mutable_program()->set_type_name("xla::ifrt::PluginProgram");
  EXPECT_THAT(Message(peer.Ask(plugin)), HasSubstr("PluginProgram"));
}

// OB-2: the end of a session, for any reason, ends its client and everything that it owned.
TEST_F(ServerTest, OB2_StreamEndFreesEverything) {
  {
    Peer peer(server_->port());
    ASSERT_TRUE(peer.Store(1, "abcd").ok());
    peer.Ask(Put(1, {4}));
    peer.Ask(Put(2, {4}));  // its bytes never arrive
    peer.Send(CompileRequest());
    EXPECT_EQ(cluster_.clients_alive, 1);
  }
  EXPECT_TRUE(WaitForClients(0));
  EXPECT_EQ(cluster_.arrays_alive, 0);
}

// OB-3: a session's handles and buffers mean nothing to another session.
TEST_F(ServerTest, OB3_SessionsAreApart) {
  Peer one(server_->port()), other(server_->port());
  ASSERT_TRUE(one.Store(1, "abcd").ok());
  one.Ask(Put(1, {4}));
  EXPECT_EQ(other.Fetch(1).status().code(), absl::StatusCode::kInvalidArgument);
  ASSERT_TRUE(one.Store(7, "abcd").ok());
  EXPECT_EQ(other.Lookup(7).status().code(), absl::StatusCode::kNotFound);
  EXPECT_NE(one.init().session_id(), other.init().session_id());
}

TEST_F(ServerTest, ShutdownEndsSessions) {
  Peer peer(server_->port());
  server_->Shutdown();
  EXPECT_EQ(cluster_.clients_alive, 0);
  server_->Shutdown();
}

// SE-1
TEST_F(ServerTest, SE1_OnlyLoopback) {
  for (const char* address : {"0.0.0.0:0", "[::]:0", "10.0.0.1:0", "example.org:1"}) {
    EXPECT_EQ(IfrtServer::Start(address, nullptr).status().code(),
              absl::StatusCode::kInvalidArgument)
        << address;
  }
  absl::Status taken =
      IfrtServer::Start(absl::StrCat("127.0.0.1:", server_->port()), nullptr).status();
  EXPECT_EQ(taken.code(), absl::StatusCode::kUnavailable);
}

// Requests with damaged bodies get answers; the session and the server go on.
TEST_F(ServerTest, HostileRequestsGetAnswers) {
  {
    MutexLock lock(cluster_.mutex);
    cluster_.executable = Identity();
  }
  Peer peer(server_->port());
  const uint64_t executable = peer.Ask(CompileRequest()).compile().executable_handle();
  proxy::IfrtRequest execute;
  execute.mutable_execute()->set_executable_handle(executable);
  execute.mutable_execute()->add_argument_handles(1);
  execute.mutable_execute()->add_result_handles(40);
  std::vector<std::string> seeds;
  for (const proxy::IfrtRequest& request :
       {Put(1, {4, 4}, {4, 1}), PutSplit(10, {2, 3}, 4), CompileRequest(), execute}) {
    seeds.push_back(request.SerializeAsString());
  }
  std::mt19937 random(2);
  int sent = 0;
  for (int round = 0; round < 3000; ++round) {
    std::string bytes = seeds[random() % seeds.size()];
    for (int i = 0; i < 3; ++i) bytes[random() % bytes.size()] = static_cast<char>(random());
    proxy::IfrtRequest request;
    if (!request.ParseFromString(bytes) || request.has_check_value_ready() ||
        request.has_copy_to_host_buffer())
      continue;
    proxy::IfrtResponse response = peer.Ask(request);
    EXPECT_TRUE(Code(response) != 0 ||
                response.response_case() != proxy::IfrtResponse::RESPONSE_NOT_SET);
    ++sent;
  }
  EXPECT_GT(sent, 500);
}

}  // namespace
}  // namespace gangway::ifrt
