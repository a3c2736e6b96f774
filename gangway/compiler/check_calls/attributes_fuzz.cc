// Any text is read or refused, as attributes and as shardings; what is read has no more than the limits say.
#include "gangway/base/check.h"
#include "gangway/base/fuzz.h"
#include "gangway/compiler/check_calls/attributes.h"
#include "gangway/compiler/check_calls/sharding_text.h"

namespace gangway::fuzz {

std::vector<std::string> Seeds() {
  return {
      "{left = true, low = 1 : i32, magma = \"au\\22to\", uplo = 76 : ui8, f = 9.5e-01 : f32}",
      "{list = array<i64: 1, 2>, deep = {a = [1, 2 : i8]}}",
      R"({mesh = #sdy.mesh<["a"=2, "b"=4], device_ids=[0, 1]>})",
      R"(#sdy.sharding_per_value<[<@mesh, [{"a", ?}, {"b":(1)2}p1], replicated={}>]>)",
      R"(#sdy<manual_axes{"a", "b"}>)",
  };
}

}  // namespace gangway::fuzz

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view text = gangway::fuzz::View(data, size);
  const auto attributes = gangway::compiler::calls::ParseAttributes(text);
  GANGWAY_CHECK(!attributes.ok() || attributes->size() <= gangway::compiler::calls::kAttributesMax,
                "the number of attributes is bounded");
  const auto meshes = gangway::compiler::calls::ParseMeshes(text);
  if (meshes.ok())
    for (const auto& [name, mesh] : *meshes)
      GANGWAY_CHECK(
          mesh.positions >= 1 && mesh.axes.size() <= gangway::compiler::calls::kMeshAxesMax,
          "a mesh has positions");
  gangway::compiler::calls::TextMeshes known;
  known["mesh"] = {{{"a", 2}, {"b", 4}}, 8};
  const auto shardings = gangway::compiler::calls::ParseShardings(text, known);
  if (shardings.ok())
    for (const auto& sharding : *shardings)
      for (const auto& dim : sharding.dims)
        for (const auto& use : dim) GANGWAY_CHECK(use.size >= 1, "an axis has positions");
  (void)gangway::compiler::calls::ParseManualAxes(text);
  return 0;
}
