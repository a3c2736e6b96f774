// The shapes of a call of linear algebra, as a line of text: what a handler assumes of its operands, results and
// attributes. Internal to compiler/check_calls.
//
// "T[mn] i[n]" are two arrays. A letter for the type: T is the call's own type, R its real type, C its complex type, i
// is s32. Letters for the dimensions after the batch: equal letters are equal sizes, except q, the smaller of m and n,
// and p, n - 1 or 0. All arrays have the same batch dimensions, which come first; "T()" is a scalar without a batch.
// Two dimensions are a matrix, column-major unless the signature says otherwise; one is a vector, row-major.
#ifndef GANGWAY_COMPILER_CHECK_CALLS_SIGNATURE_H_
#define GANGWAY_COMPILER_CHECK_CALLS_SIGNATURE_H_

#include <array>
#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "gangway/compiler/check_calls/call_check.h"

namespace gangway::compiler::calls {

enum class MatrixOrder { kColumns, kRows, kEither };

// The sizes that the letters of a signature got.
class Sizes {
 public:
  // 0: no array has the letter.
  int64_t Of(char letter) const;
  // Binds the letter, or says whether it is bound to this size.
  bool Bind(char letter, int64_t size);

 private:
  std::array<std::optional<int64_t>, 26> sizes_;
};

struct Signature {
  std::string_view name;  // of the routine
  std::string_view operands;
  std::string_view results;
  // "uplo:LU" is one of these letters as ui8, "left:bool", "low:i32", "algorithm:ui8", "magma:string". All are needed.
  std::string_view attributes;
  std::string_view aliases;  // "00 13": result 0 may lie in operand 0, result 1 in operand 3
  // What the letters do not say; may be null.
  void (*also)(CallCheck&, const Sizes&, const Attributes&) = nullptr;
  MatrixOrder order = MatrixOrder::kColumns;
};

// `type`: what T stands for.
void CheckSignature(CallCheck& check, const Signature& signature, int32_t type);

}  // namespace gangway::compiler::calls

#endif  // GANGWAY_COMPILER_CHECK_CALLS_SIGNATURE_H_
