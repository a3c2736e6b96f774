// Implementation of late_argument.h.
#include "gangway/worker/service/launch/late_argument.h"

#include "absl/status/status.h"

#include "gangway/device/element_type.h"

namespace gangway::worker {

std::optional<LateArgument> LateArgument::Make(device::Backend& backend, int device,
                                               const std::vector<store::Content>& contents,
                                               const std::vector<bool>& donated,
                                               std::vector<device::Buffer*>& arguments) {
  // Where ExecuteOn waits for the argument, nothing would fill it.
  if (backend.capabilities().execute_waits_for_arguments) return std::nullopt;
  size_t least = kBytesMax + 1, index = 0;
  for (size_t k = 0; k < contents.size(); ++k) {
    const auto bytes = device::HostBytes(contents[k].buffer->spec());
    if (donated[k] || !bytes || *bytes >= least || *bytes == 0) continue;
    least = *bytes;
    index = k;
  }
  if (least > kBytesMax) return std::nullopt;
  const std::shared_ptr<device::Buffer>& original = contents[index].buffer;
  auto made = backend.CreatePlaceholder(device, original->spec());
  if (!made.ok() || made->buffer->memory_kind() != original->memory_kind()) return std::nullopt;
  LateArgument late(original, *std::move(made), least);
  arguments[index] = late.copy_.buffer.get();
  return late;
}

void LateArgument::Fill(const std::shared_ptr<const TaskEnvironment>& environment) && {
  auto bytes = std::make_shared<std::vector<std::byte>>(bytes_);
  std::shared_ptr<device::Filler> filler = std::move(copy_.filler);
  const std::shared_ptr<device::Buffer> original = std::move(original_);
  original->CopyToHost(bytes->data(), bytes->size(),
                       CountOwed(environment->callbacks, [original, filler, bytes,
                                                          environment](const absl::Status& copied) {
                         // Counted, like a callback: the program may run in Fill.
                         environment->callbacks->Add();
                         environment->spare_threads->Run([filler, bytes, copied, environment] {
                           const absl::Status filled =
                               copied.ok() ? filler->Fill(*bytes, [bytes](const absl::Status&) {})
                                           : filler->Fail(copied);
                           filled.IgnoreError();  // a filler that is dropped fails its buffer
                           environment->callbacks->End();
                         });
                       }));
}

}  // namespace gangway::worker
