// name: dynamic-slice-at-huge-indices
// tries: A dynamic slice at an index far beyond the array.
// expect: harmless
// fill: 127
module @m { func.func public @main(%x: tensor<1024xf32>, %i: tensor<i64>) -> tensor<16xf32> {
  %y = stablehlo.dynamic_slice %x, %i, sizes = [16] : (tensor<1024xf32>, tensor<i64>) -> tensor<16xf32>
  return %y : tensor<16xf32>
} }
// -----
// name: dynamic-slice-at-negative-indices
// tries: A dynamic slice before the array.
// expect: harmless
// fill: 255
module @m { func.func public @main(%x: tensor<1024xi32>, %i: tensor<i64>) -> tensor<16xi32> {
  %y = stablehlo.dynamic_slice %x, %i, sizes = [16] : (tensor<1024xi32>, tensor<i64>) -> tensor<16xi32>
  return %y : tensor<16xi32>
} }
// -----
// name: dynamic-update-slice-at-huge-indices
// tries: Write far beyond a donated array.
// expect: harmless
// fill: 127
module @m { func.func public @main(%x: tensor<1024xf32> {tf.aliasing_output = 0 : i32}, %u: tensor<16xf32>, %i: tensor<i32>) -> tensor<1024xf32> {
  %y = stablehlo.dynamic_update_slice %x, %u, %i : (tensor<1024xf32>, tensor<16xf32>, tensor<i32>) -> tensor<1024xf32>
  return %y : tensor<1024xf32>
} }
// -----
// name: gather-with-promises-that-lie
// tries: A gather whose indices are said to be sorted and unique, and are neither, nor in the array.
// expect: harmless
// fill: 127
module @m { func.func public @main(%x: tensor<1024xf32>, %i: tensor<64x1xi64>) -> tensor<64xf32> {
  %y = "stablehlo.gather"(%x, %i) <{dimension_numbers = #stablehlo.gather<collapsed_slice_dims = [0], start_index_map = [0], index_vector_dim = 1>, indices_are_sorted = true, slice_sizes = array<i64: 1>}> : (tensor<1024xf32>, tensor<64x1xi64>) -> tensor<64xf32>
  return %y : tensor<64xf32>
} }
// -----
// name: scatter-with-promises-that-lie
// tries: A scatter whose indices are said to be sorted and unique, and are far outside.
// expect: harmless
// fill: 127
module @m { func.func public @main(%x: tensor<1024xf32> {tf.aliasing_output = 0 : i32}, %i: tensor<64x1xi64>, %u: tensor<64xf32>) -> tensor<1024xf32> {
  %y = "stablehlo.scatter"(%x, %i, %u) <{scatter_dimension_numbers = #stablehlo.scatter<inserted_window_dims = [0], scatter_dims_to_operand_dims = [0], index_vector_dim = 1>, indices_are_sorted = true, unique_indices = true}> ({
  ^bb0(%a: tensor<f32>, %b: tensor<f32>):
    stablehlo.return %b : tensor<f32>
  }) : (tensor<1024xf32>, tensor<64x1xi64>, tensor<64xf32>) -> tensor<1024xf32>
  return %y : tensor<1024xf32>
} }
// -----
// name: scatter-at-negative-indices
// tries: A scatter before the array.
// expect: harmless
// fill: 255
module @m { func.func public @main(%x: tensor<1024xi32> {tf.aliasing_output = 0 : i32}, %i: tensor<64x1xi32>, %u: tensor<64xi32>) -> tensor<1024xi32> {
  %y = "stablehlo.scatter"(%x, %i, %u) <{scatter_dimension_numbers = #stablehlo.scatter<inserted_window_dims = [0], scatter_dims_to_operand_dims = [0], index_vector_dim = 1>}> ({
  ^bb0(%a: tensor<i32>, %b: tensor<i32>):
    stablehlo.return %b : tensor<i32>
  }) : (tensor<1024xi32>, tensor<64x1xi32>, tensor<64xi32>) -> tensor<1024xi32>
  return %y : tensor<1024xi32>
} }
// -----
// name: divide-by-zero
// tries: Integer division by zero, which is a signal on the processor.
// expect: harmless
// fill: 0
module @m { func.func public @main(%x: tensor<64xi32>) -> (tensor<64xi32>, tensor<64xi32>) {
  %y = stablehlo.divide %x, %x : tensor<64xi32>
  %z = stablehlo.remainder %x, %x : tensor<64xi32>
  return %y, %z : tensor<64xi32>, tensor<64xi32>
} }
// -----
// name: divide-the-smallest-by-minus-one
// tries: The other integer division that is a signal.
// expect: harmless
// fill: 255
module @m { func.func public @main(%x: tensor<64xi32>) -> (tensor<64xi32>, tensor<64xi32>) {
  %c = stablehlo.constant dense<-2147483648> : tensor<64xi32>
  %y = stablehlo.divide %c, %x : tensor<64xi32>
  %z = stablehlo.remainder %c, %x : tensor<64xi32>
  return %y, %z : tensor<64xi32>, tensor<64xi32>
} }
// -----
// name: shift-by-more-than-all-bits
// tries: Shifts by counts that the processor does not define.
// expect: harmless
// fill: 127
module @m { func.func public @main(%x: tensor<64xi32>) -> tensor<64xi32> {
  %y = stablehlo.shift_left %x, %x : tensor<64xi32>
  %z = stablehlo.shift_right_arithmetic %y, %x : tensor<64xi32>
  return %z : tensor<64xi32>
} }
// -----
// name: convert-of-infinities
// tries: Numbers that do not fit the type that they are converted to.
// expect: harmless
// fill: 255
module @m { func.func public @main(%x: tensor<64xf32>) -> tensor<64xi8> {
  %y = stablehlo.convert %x : (tensor<64xf32>) -> tensor<64xi8>
  return %y : tensor<64xi8>
} }
// -----
// name: case-of-a-huge-index
// tries: A branch by an index outside the table of branches.
// expect: harmless
// fill: 127
module @m { func.func public @main(%i: tensor<i32>, %x: tensor<4xf32>) -> tensor<4xf32> {
  %y = "stablehlo.case"(%i) ({
    stablehlo.return %x : tensor<4xf32>
  }, {
    %z = stablehlo.add %x, %x : tensor<4xf32>
    stablehlo.return %z : tensor<4xf32>
  }, {
    %z = stablehlo.negate %x : tensor<4xf32>
    stablehlo.return %z : tensor<4xf32>
  }) : (tensor<i32>) -> tensor<4xf32>
  return %y : tensor<4xf32>
} }
// -----
// name: case-of-a-negative-index
// tries: A branch by an index before the table of branches.
// expect: harmless
// fill: 255
module @m { func.func public @main(%i: tensor<i32>, %x: tensor<4xi32>) -> tensor<4xi32> {
  %y = "stablehlo.case"(%i) ({
    stablehlo.return %x : tensor<4xi32>
  }, {
    %z = stablehlo.add %x, %x : tensor<4xi32>
    stablehlo.return %z : tensor<4xi32>
  }) : (tensor<i32>) -> tensor<4xi32>
  return %y : tensor<4xi32>
} }
// -----
// name: bool-of-255
// tries: A truth value of neither 0 nor 1, as a predicate and as an index.
// expect: harmless
// fill: 255
module @m { func.func public @main(%p: tensor<64xi1>, %x: tensor<64xi32>) -> (tensor<64xi32>, tensor<64xi32>) {
  %n = stablehlo.not %p : tensor<64xi1>
  %y = stablehlo.select %n, %x, %x : tensor<64xi1>, tensor<64xi32>
  %c = stablehlo.convert %p : (tensor<64xi1>) -> tensor<64xi32>
  return %y, %c : tensor<64xi32>, tensor<64xi32>
} }
// -----
// name: top-k-of-nans
// tries: The largest of numbers that are all NaN.
// expect: harmless
// fill: 255
module @m { func.func public @main(%x: tensor<1024xf32>) -> (tensor<16xf32>, tensor<16xi32>) {
  %v, %i = chlo.top_k(%x, k = 16) : tensor<1024xf32> -> (tensor<16xf32>, tensor<16xi32>)
  return %v, %i : tensor<16xf32>, tensor<16xi32>
} }
