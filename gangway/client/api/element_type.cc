// Implementation of the public header element_type.h.
#include "gangway/element_type.h"

namespace gangway {
namespace {

struct Known {
  ElementType type;
  size_t bytes;
  const char* name;
};

constexpr Known kKnown[] = {
    {ElementType::kPred, 1, "pred"},  {ElementType::kS8, 1, "s8"},
    {ElementType::kS16, 2, "s16"},    {ElementType::kS32, 4, "s32"},
    {ElementType::kS64, 8, "s64"},    {ElementType::kU8, 1, "u8"},
    {ElementType::kU16, 2, "u16"},    {ElementType::kU32, 4, "u32"},
    {ElementType::kU64, 8, "u64"},    {ElementType::kF16, 2, "f16"},
    {ElementType::kF32, 4, "f32"},    {ElementType::kF64, 8, "f64"},
    {ElementType::kC64, 8, "c64"},    {ElementType::kBF16, 2, "bf16"},
    {ElementType::kC128, 16, "c128"},
};

const Known* Find(ElementType type) {
  for (const Known& each : kKnown)
    if (each.type == type) return &each;
  return nullptr;
}

}  // namespace

size_t ElementBytes(ElementType type) {
  const Known* const known = Find(type);
  return known == nullptr ? 0 : known->bytes;
}

std::string ToText(ElementType type) {
  const Known* const known = Find(type);
  return known == nullptr ? "?" : known->name;
}

}  // namespace gangway
