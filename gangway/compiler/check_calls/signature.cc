// Implementation of signature.h.
#include "gangway/compiler/check_calls/signature.h"

#include <algorithm>
#include <limits>
#include <string>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"

namespace gangway::compiler::calls {
namespace {

absl::string_view View(std::string_view text) { return {text.data(), text.size()}; }

std::vector<absl::string_view> Words(std::string_view text) {
  return absl::StrSplit(View(text), ' ', absl::SkipEmpty());
}

int32_t TypeOf(char letter, int32_t own) {
  const bool is_double = own == xla::TYPE_F64 || own == xla::TYPE_C128;
  switch (letter) {
    case 'T':
      return own;
    case 'R':
      return is_double ? xla::TYPE_F64 : xla::TYPE_F32;
    case 'C':
      return is_double ? xla::TYPE_C128 : xla::TYPE_C64;
    default:
      return xla::TYPE_S32;
  }
}

// One array of a signature: "T[mn]", "T()".
struct ArrayForm {
  explicit ArrayForm(absl::string_view text)
      : type(text[0]), has_batch(text[1] == '['), letters(text.data() + 2, text.size() - 3) {}

  char type;
  bool has_batch;
  std::string_view letters;
};

class Matcher {
 public:
  Matcher(CallCheck& check, const Signature& signature, int32_t type)
      : check_(check), signature_(signature), type_(type) {}

  void Match(absl::string_view text, const Shape& shape, const std::string& name) {
    const ArrayForm form(text);
    check_.Array(shape, name);
    check_.True(shape.element_type() == TypeOf(form.type, type_), name + " is of another type");
    const int trailing = static_cast<int>(form.letters.size());
    const int rank = shape.dimensions_size();
    if (!form.has_batch) return check_.True(rank == 0, name + " is no scalar");
    if (!batch_) {
      if (rank < trailing) return check_.Fault(name + " has too few dimensions");
      batch_.emplace(shape.dimensions().begin(), shape.dimensions().end() - trailing);
    }
    const int batch = static_cast<int>(batch_->size());
    const bool fits = rank == batch + trailing &&
                      std::equal(batch_->begin(), batch_->end(), shape.dimensions().begin());
    check_.True(fits,
                absl::StrCat(name, " has shape ", ShapeText(shape), ", and ", View(form.letters),
                             " after the batch of the first operand is required"));
    for (int i = 0; fits && i < trailing; ++i)
      Bind(form.letters[static_cast<size_t>(i)], shape.dimensions(batch + i), name, shape);
    CheckOrder(shape, trailing, name);
  }

  const Sizes& sizes() const { return sizes_; }
  int64_t batch_rank() const { return batch_ ? static_cast<int64_t>(batch_->size()) : 0; }

 private:
  void Bind(char letter, int64_t size, const std::string& name, const Shape& shape) {
    bool fits = size <= std::numeric_limits<int32_t>::max();  // what the libraries count with
    if (letter == 'q') {
      fits = fits && size == std::min(sizes_.Of('m'), sizes_.Of('n'));
    } else if (letter == 'p') {
      fits = fits && size == std::max<int64_t>(sizes_.Of('n') - 1, 0);
    } else {
      fits = fits && sizes_.Bind(letter, size);
    }
    check_.True(fits, absl::StrCat(name, " of shape ", ShapeText(shape),
                                   " does not fit the other arrays: its size ", size));
  }

  void CheckOrder(const Shape& shape, int trailing, const std::string& name) {
    if (trailing < 2 || signature_.order == MatrixOrder::kRows) return check_.RowMajor(shape, name);
    if (signature_.order == MatrixOrder::kEither && IsRowMajor(shape)) return;
    check_.ColumnMajor(shape, name);
  }

  CallCheck& check_;
  const Signature& signature_;
  const int32_t type_;
  Sizes sizes_;
  std::optional<std::vector<int64_t>> batch_;
};

bool Allows(absl::string_view form, const Attribute& value) {
  if (form == "bool") return value.kind == Attribute::Kind::kBool;
  if (form == "string") return value.kind == Attribute::Kind::kString;
  if (value.kind != Attribute::Kind::kInteger) return false;
  if (form == "i32" || form == "ui8") return View(value.type) == form;
  return value.type == "ui8" &&
         form.find(static_cast<char>(value.integer)) != absl::string_view::npos;
}

void CheckAttributes(CallCheck& check, std::string_view forms, const Attributes& attributes) {
  size_t count = 0;
  for (const absl::string_view word : Words(forms)) {
    const std::pair<absl::string_view, absl::string_view> form = absl::StrSplit(word, ':');
    const auto found = attributes.find(std::string_view(form.first.data(), form.first.size()));
    ++count;
    check.True(found != attributes.end() && Allows(form.second, found->second),
               absl::StrCat("its attribute ", form.first, " is not of ", form.second));
  }
  check.True(attributes.size() == count, "it has attributes that its handler does not take");
}

// The dimensions along which the compiler may cut the call are those of its batch.
void CheckBatchRank(CallCheck& check, int64_t rank) {
  const auto& attributes = check.call().frontend_attributes().map();
  const auto found = attributes.find("num_batch_dims");
  int64_t said = 0;
  if (found == attributes.end()) return;
  check.True(absl::SimpleAtoi(found->second, &said) && said >= 0 && said <= rank,
             absl::StrCat("its num_batch_dims is not from 0 to ", rank));
}

}  // namespace

int64_t Sizes::Of(char letter) const {
  return sizes_[static_cast<size_t>(letter - 'a')].value_or(0);
}

bool Sizes::Bind(char letter, int64_t size) {
  auto& bound = sizes_[static_cast<size_t>(letter - 'a')];
  if (!bound) bound = size;
  return *bound == size;
}

void CheckSignature(CallCheck& check, const Signature& signature, int32_t type) {
  const Attributes attributes = check.TypedAttributes();
  const auto operands = Words(signature.operands);
  const auto results = Words(signature.results);
  check.Operands(static_cast<int>(operands.size()));
  check.NoCallees();
  check.True(
      check.results().size() == results.size() && check.yields_tuple() == (results.size() > 1),
      absl::StrCat("it has not ", results.size(), " results"));
  CheckAttributes(check, signature.attributes, attributes);
  if (check.failed()) return;
  Matcher matcher(check, signature, type);
  for (size_t i = 0; i < operands.size() && !check.failed(); ++i) {
    const Shape* const placed = check.Placed(static_cast<int>(i));
    if (placed != nullptr) matcher.Match(operands[i], *placed, absl::StrCat("operand ", i));
  }
  for (size_t i = 0; i < results.size() && !check.failed(); ++i)
    matcher.Match(results[i], *check.results()[i], absl::StrCat("result ", i));
  CheckBatchRank(check, matcher.batch_rank());
  std::vector<AllowedAlias> aliases;
  for (const absl::string_view pair : Words(signature.aliases))
    aliases.push_back({pair[0] - '0', pair[1] - '0'});
  if (!check.failed()) check.Aliases(aliases);
  if (!check.failed() && signature.also != nullptr)
    signature.also(check, matcher.sizes(), attributes);
}

}  // namespace gangway::compiler::calls
