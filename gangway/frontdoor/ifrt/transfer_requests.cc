// Requests that move bytes between the client's host buffers and arrays. An array is declared at
// once. Its bytes are pushed when the HostBufferStore call that carries them has arrived, on the
// thread that completes the pair, or on the bulk executor if they must be copied first.
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"

#include "gangway/base/ids.h"
#include "gangway/base/status.h"
#include "gangway/frontdoor/ifrt/requests.h"
#include "gangway/xla/dtype.h"
#include "gangway/xla/layout.h"
#include "gangway/xla/strided.h"

namespace gangway::ifrt {
namespace {

// The layout of a host buffer's bytes, checked against its dtype and dims.
struct BufferForm {
  int64_t element_bytes = 0;
  std::vector<int64_t> dims;
  std::vector<int64_t> byte_strides;
  xla::StridedRegion region;
  uint64_t dense_bytes = 0;
};

absl::StatusOr<BufferForm> ReadForm(int32_t element_type, std::span<const int64_t> dims,
                                    const xla::IfrtByteStridesProto* byte_strides) {
  BufferForm form;
  GANGWAY_ASSIGN_OR_RETURN(int64_t element_bytes, xla::ElementBytes(element_type));
  form.element_bytes = element_bytes;
  GANGWAY_ASSIGN_OR_RETURN(int64_t bytes, xla::DenseBytes(element_type, dims));
  form.dense_bytes = static_cast<uint64_t>(bytes);
  form.dims.assign(dims.begin(), dims.end());
  if (byte_strides == nullptr) {
    form.region = xla::StridedRegion{bytes, 0, true};
    return form;
  }
  form.byte_strides.assign(byte_strides->strides().begin(), byte_strides->strides().end());
  GANGWAY_ASSIGN_OR_RETURN(xla::StridedRegion region,
                           xla::Region(form.element_bytes, form.dims, form.byte_strides));
  form.region = region;
  return form;
}

// The dense form of the bytes that the client sent; the same bytes if they are dense already.
absl::StatusOr<HostBytesRef> Densify(absl::StatusOr<HostBytesRef> bytes, const BufferForm& form,
                                     HostBuffers& buffers) {
  GANGWAY_RETURN_IF_ERROR(bytes);
  const std::string_view view = (*bytes)->view();
  if (static_cast<int64_t>(view.size()) != form.region.bytes) {
    return absl::InvalidArgumentError(absl::StrCat("a host buffer holds ", view.size(),
                                                   " bytes; its shape and strides need ",
                                                   form.region.bytes));
  }
  if (form.region.dense) return bytes;
  // Charged before it is allocated: strides of 0 expand a few bytes to many.
  GANGWAY_ASSIGN_OR_RETURN(std::shared_ptr<HostBytes> dense, buffers.TryAllocate(form.dense_bytes));
  GANGWAY_RETURN_IF_ERROR(xla::CopyToDense(view, form.element_bytes, form.dims, form.byte_strides,
                                           {dense->Make(), dense->size()}));
  return HostBytesRef(std::move(dense));
}

// Pushes the bytes of `handle` to `shards` of `upload` when they have arrived.
void PushWhenThere(SessionContext& context, uint64_t handle, OperationId upload,
                   std::vector<uint32_t> shards, BufferForm form) {
  if (form.dense_bytes == 0) {
    // An empty array needs no bytes; a buffer that arrives for it is taken and dropped.
    for (uint32_t shard : shards) context.client.Push(upload, shard, {}, [] {});
    return context.buffers.Take(handle, [](const absl::StatusOr<HostBytesRef>&) {});
  }
  const bool copied = !form.region.dense && form.dense_bytes > kInlineBytes;
  const bool reserves =
      form.region.dense && form.dense_bytes >= kPlacedBytesMin && shards.size() == 1;
  const uint32_t first = shards.empty() ? 0 : shards.front();
  const size_t size = form.dense_bytes;
  auto push = [&client = context.client, &buffers = context.buffers, upload,
               shards = std::move(shards),
               form = std::move(form)](absl::StatusOr<HostBytesRef> sent) {
    absl::StatusOr<HostBytesRef> bytes = Densify(std::move(sent), form, buffers);
    if (!bytes.ok()) return client.AbandonUpload(upload, bytes.status());
    for (uint32_t shard : shards) client.Push(upload, shard, (*bytes)->view(), [kept = *bytes] {});
  };
  context.buffers.Take(handle, std::move(push), copied ? context.bulk : nullptr);
  if (!reserves) return;
  // Held weakly: the place may come after the session's end.
  context.client.Reserve(
      upload, first,
      [weak = context.buffers.weak_from_this(), handle, size](std::shared_ptr<char> place) {
        if (auto buffers = weak.lock()) buffers->Place(handle, {std::move(place), size});
      });
}

std::vector<uint32_t> AllShards(const ArrayInfo& info) {
  std::vector<uint32_t> shards;
  for (uint32_t i = 0; i < info.devices.size(); ++i) shards.push_back(i);
  return shards;
}

absl::Status MakeOne(SessionContext& context, const xla::MakeArrayFromHostBufferRequest& request,
                     IfrtResponse& response) {
  GANGWAY_ASSIGN_OR_RETURN(ArrayInfoRef info, ReadArrayInfo(request.dtype(), request.shape(),
                                                            request.sharding(), context.devices));
  GANGWAY_RETURN_IF_ERROR(xla::CheckRowMajor(request.layout().serialized(), info->dims.size()),
                          "an array to make");
  if (!info->fully_replicated) {
    return absl::UnimplementedError(
        "one host buffer cannot fill an array that is split over devices; send one per shard");
  }
  GANGWAY_ASSIGN_OR_RETURN(
      BufferForm form, ReadForm(info->element_type, info->dims,
                                request.has_byte_strides() ? &request.byte_strides() : nullptr));
  const ArrayHandle named{request.array_handle()};
  GANGWAY_ASSIGN_OR_RETURN(
      std::vector<ArrayHandle> handles,
      ResultHandles(context, std::span(&named, request.has_array_handle() ? 1 : 0), 1));
  const OperationId upload = context.client.Upload(handles.front(), ToSpec(*info));
  std::vector<uint32_t> shards = AllShards(*info);
  context.arrays[handles.front()].info = std::move(info);
  response.mutable_make_array_from_host_buffer()->set_array_handle(NumberOf(handles.front()));
  PushWhenThere(context, request.host_buffer_handle(), upload, std::move(shards), std::move(form));
  return absl::OkStatus();
}

using ShardsRequest = xla::MakeArraysFromHostBufferShardsRequest;

// Which shards each host buffer fills, checked: every shard exactly once.
struct ShardedForm {
  ArrayInfoRef info;
  std::vector<BufferForm> forms;
  std::vector<std::vector<uint32_t>> shards;
};

absl::StatusOr<ShardedForm> ReadSharded(const SessionContext& context,
                                        const ShardsRequest::Spec& spec) {
  ShardedForm result;
  GANGWAY_ASSIGN_OR_RETURN(result.info, ReadArrayInfo(spec.array_spec(), context.devices));
  if (spec.shard_indices_size() != spec.host_buffers_size()) {
    return absl::InvalidArgumentError("host buffers and their shard indices differ in number");
  }
  std::vector<bool> filled(result.info->devices.size());
  size_t count = 0;
  for (int i = 0; i < spec.host_buffers_size(); ++i) {
    const auto& buffer = spec.host_buffers(i);
    const std::vector<int64_t> dims(buffer.shape().dims().begin(), buffer.shape().dims().end());
    GANGWAY_ASSIGN_OR_RETURN(xla::PrimitiveType type, xla::FromIfrt(buffer.dtype().kind()));
    if (type != result.info->element_type || dims != result.info->shard_dims) {
      return absl::InvalidArgumentError(
          absl::StrCat("host buffer ", i, " has another shape or type than a shard"));
    }
    GANGWAY_ASSIGN_OR_RETURN(
        BufferForm form,
        ReadForm(type, dims, buffer.has_byte_strides() ? &buffer.byte_strides() : nullptr));
    result.forms.push_back(std::move(form));
    std::vector<uint32_t>& shards = result.shards.emplace_back();
    for (int64_t shard : spec.shard_indices(i).indices()) {
      if (shard < 0 || shard >= static_cast<int64_t>(filled.size()) || filled[shard]) {
        return absl::InvalidArgumentError(
            absl::StrCat("shard ", shard, " is filled twice or does not exist"));
      }
      filled[shard] = true;
      ++count;
      shards.push_back(static_cast<uint32_t>(shard));
    }
  }
  if (count != filled.size()) {
    return absl::InvalidArgumentError(
        absl::StrCat("the host buffers fill only ", count, " of ", filled.size(), " shards"));
  }
  return result;
}

absl::Status MakeMany(SessionContext& context, std::span<const ArrayHandle> named,
                      const ShardsRequest& request, IfrtResponse& response) {
  std::vector<ShardedForm> arrays;
  for (const auto& spec : request.specs()) {
    GANGWAY_ASSIGN_OR_RETURN(ShardedForm array, ReadSharded(context, spec));
    arrays.push_back(std::move(array));
  }
  GANGWAY_ASSIGN_OR_RETURN(std::vector<ArrayHandle> handles,
                           ResultHandles(context, named, arrays.size()));
  ListArrays(handles,
             *response.mutable_make_arrays_from_host_buffer_shards()->mutable_array_handles());
  for (size_t i = 0; i < arrays.size(); ++i) {
    context.arrays[handles[i]].info = arrays[i].info;
    const OperationId upload = context.client.Upload(handles[i], ToSpec(*arrays[i].info));
    const auto& buffers = request.specs(static_cast<int>(i)).host_buffers();
    for (int k = 0; k < buffers.size(); ++k) {
      PushWhenThere(context, buffers[k].host_buffer_handle(), upload,
                    std::move(arrays[i].shards[k]), std::move(arrays[i].forms[k]));
    }
  }
  return absl::OkStatus();
}

// A fetch in progress; owned by its sink.
struct Fetching {
  BufferForm form;
  std::shared_ptr<HostBytes> dense;
  char* data = nullptr;  // for bytes that come in pieces; null: none have
};

// The bytes in the form that the client asked for.
absl::StatusOr<HostBytesRef> InForm(const Fetching& fetching, HostBuffers& buffers) {
  if (fetching.form.region.dense) return HostBytesRef(fetching.dense);
  GANGWAY_ASSIGN_OR_RETURN(std::shared_ptr<HostBytes> strided,
                           buffers.TryAllocate(static_cast<uint64_t>(fetching.form.region.bytes)));
  GANGWAY_RETURN_IF_ERROR(xla::CopyFromDense(fetching.dense->view(), fetching.form.element_bytes,
                                             fetching.form.dims, fetching.form.byte_strides,
                                             {strided->Make(), strided->size()}));
  return HostBytesRef(std::move(strided));
}

IfrtResponse CopyReply(uint64_t op_id) {
  IfrtResponse response = ReplyTo(op_id);
  response.mutable_copy_to_host_buffer();
  return response;
}

absl::Status StartFetch(SessionContext& context, uint64_t op_id,
                        const xla::CopyToHostBufferRequest& request) {
  const ArrayHandle array{request.array_handle()};
  GANGWAY_ASSIGN_OR_RETURN(ArrayInfoRef info, FindArray(context, array));
  if (info->devices.size() != 1 && !info->fully_replicated) {
    return absl::InvalidArgumentError(absl::StrCat(
        "array ", array, " is split over ", info->devices.size(), " devices; fetch its shards"));
  }
  auto fetching = std::make_shared<Fetching>();
  GANGWAY_ASSIGN_OR_RETURN(
      fetching->form, ReadForm(info->element_type, info->shard_dims,
                               request.has_byte_strides() ? &request.byte_strides() : nullptr));
  // A hostile stride makes a small array cover much memory: reject it before allocating.
  if (fetching->form.region.bytes > int64_t{1} << 20 &&
      static_cast<uint64_t>(fetching->form.region.bytes) / 64 > fetching->form.dense_bytes) {
    return absl::InvalidArgumentError(
        "the byte strides spread an array over more than 64 times its size");
  }
  GANGWAY_ASSIGN_OR_RETURN(fetching->dense,
                           context.buffers.TryAllocate(fetching->form.dense_bytes));
  FetchSink sink;
  sink.on_data = [fetching](size_t, uint64_t offset, std::string_view data) {
    if (offset > fetching->dense->size() || data.size() > fetching->dense->size() - offset) return;
    if (fetching->data == nullptr) fetching->data = fetching->dense->Make();
    std::memcpy(fetching->data + offset, data.data(), data.size());
  };
  sink.on_place = [fetching](size_t, std::shared_ptr<const char> bytes, size_t size) {
    if (size == fetching->dense->size()) fetching->dense->Refer(std::move(bytes));
  };
  // Small arrays are announced, so that the client's lookup of the bytes travels while they are made.
  const uint64_t handle = request.host_buffer_handle();
  const bool announced =
      fetching->form.dense_bytes <= kInlineBytes && context.buffers.Announce(handle);
  sink.on_done = [fetching, &replies = context.replies, &buffers = context.buffers, op_id, handle,
                  announced](absl::Status status) {
    if (status.ok() && fetching->dense->view().size() != fetching->form.dense_bytes)
      status =
          absl::InternalError("an array arrived with a size that its type and shape do not have");
    absl::StatusOr<HostBytesRef> bytes =
        status.ok() ? InForm(*fetching, buffers) : absl::StatusOr<HostBytesRef>(status);
    if (announced) return buffers.Fulfil(handle, std::move(bytes));
    status = bytes.ok() ? buffers.Put(handle, *std::move(bytes)) : bytes.status();
    replies.Send(status.ok() ? CopyReply(op_id) : ErrorReply(op_id, status));
  };
  context.client.Fetch(array, {0}, std::move(sink));
  if (announced) context.replies.Send(CopyReply(op_id));
  return absl::OkStatus();
}

}  // namespace

absl::Status MakeArray(SessionContext& context, const xla::MakeArrayFromHostBufferRequest& request,
                       IfrtResponse& response) {
  absl::Status status = MakeOne(context, request, response);
  if (status.ok()) return status;
  context.buffers.Take(request.host_buffer_handle(), [](const absl::StatusOr<HostBytesRef>&) {});
  const ArrayHandle named{request.array_handle()};
  return Spoil(context, std::span(&named, 1), status);
}

absl::Status MakeShardedArrays(SessionContext& context, const ShardsRequest& request,
                               IfrtResponse& response) {
  const std::vector<ArrayHandle> named = ArraysOf(request.array_handles());
  absl::Status status = MakeMany(context, named, request, response);
  if (status.ok()) return status;
  for (const auto& spec : request.specs()) {
    for (const auto& buffer : spec.host_buffers()) {
      context.buffers.Take(buffer.host_buffer_handle(), [](const absl::StatusOr<HostBytesRef>&) {});
    }
  }
  return Spoil(context, named, status);
}

void CopyToHost(SessionContext& context, uint64_t op_id,
                const xla::CopyToHostBufferRequest& request) {
  absl::Status status = StartFetch(context, op_id, request);
  if (!status.ok()) context.replies.Send(ErrorReply(op_id, status));
}

}  // namespace gangway::ifrt
