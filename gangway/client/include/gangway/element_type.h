// The types of an array's elements, and the C++ types whose bytes they have. Numbers are in the byte order of the host,
// which is little-endian.
#ifndef GANGWAY_ELEMENT_TYPE_H_
#define GANGWAY_ELEMENT_TYPE_H_

#include <complex>
#include <cstddef>
#include <cstdint>
#include <string>
#include <type_traits>

namespace gangway {

// The numbers are those of XLA's PrimitiveType.
enum class ElementType : int32_t {
  kPred = 1,  // a truth value, of one byte
  kS8 = 2,
  kS16 = 3,
  kS32 = 4,
  kS64 = 5,
  kU8 = 6,
  kU16 = 7,
  kU32 = 8,
  kU64 = 9,
  kF16 = 10,
  kF32 = 11,
  kF64 = 12,
  kC64 = 15,   // two F32: the real part, then the imaginary one
  kBF16 = 16,  // the upper half of an F32
  kC128 = 18,  // two F64
};

// The C++ type of kPred: bool has no size that the language promises.
enum class Pred : uint8_t { kFalse = 0, kTrue = 1 };
// The bits of a kF16, for which C++20 has no type. Convert them with a library.
enum class Float16 : uint16_t {};
// The bits of a kBF16, likewise.
enum class BFloat16 : uint16_t {};

// Its `value` is the element type that the C++ type T has the bytes of. For T of this list only.
template <typename T>
struct ElementTypeOf;

#define GANGWAY_ELEMENT_TYPE(type, name) \
  template <>                            \
  struct ElementTypeOf<type> : std::integral_constant<ElementType, ElementType::name> {}
GANGWAY_ELEMENT_TYPE(Pred, kPred);
GANGWAY_ELEMENT_TYPE(int8_t, kS8);
GANGWAY_ELEMENT_TYPE(int16_t, kS16);
GANGWAY_ELEMENT_TYPE(int32_t, kS32);
GANGWAY_ELEMENT_TYPE(int64_t, kS64);
GANGWAY_ELEMENT_TYPE(uint8_t, kU8);
GANGWAY_ELEMENT_TYPE(uint16_t, kU16);
GANGWAY_ELEMENT_TYPE(uint32_t, kU32);
GANGWAY_ELEMENT_TYPE(uint64_t, kU64);
GANGWAY_ELEMENT_TYPE(Float16, kF16);
GANGWAY_ELEMENT_TYPE(float, kF32);
GANGWAY_ELEMENT_TYPE(double, kF64);
GANGWAY_ELEMENT_TYPE(std::complex<float>, kC64);
GANGWAY_ELEMENT_TYPE(BFloat16, kBF16);
GANGWAY_ELEMENT_TYPE(std::complex<double>, kC128);
#undef GANGWAY_ELEMENT_TYPE

// A C++ type that has the bytes of an element type.
template <typename T>
concept Element = requires { ElementTypeOf<T>::value; };

// Bytes of one element: 4 for kF32. 0 for a number that is not in the list above.
size_t ElementBytes(ElementType type);

// "f32", as in StableHLO and HLO. "?" for a number that is not in the list above.
std::string ToText(ElementType type);

}  // namespace gangway

#endif  // GANGWAY_ELEMENT_TYPE_H_
