// name: sharding-that-grows
// tries: An annotation of a sharding whose result is larger than its operand: read past the operand's end.
// expect: refused Sharding
module @m { func.func public @main(%x: tensor<4xf32>) -> tensor<65536xf32> {
  %y = stablehlo.custom_call @Sharding(%x) {mhlo.sharding = "{replicated}"} : (tensor<4xf32>) -> tensor<65536xf32>
  return %y : tensor<65536xf32>
} }
// -----
// name: sharding-that-writes
// tries: Write through an annotation whose result is larger than its operand, which is donated.
// expect: refused Sharding
module @m { func.func public @main(%x: tensor<4xf32> {tf.aliasing_output = 0 : i32}) -> tensor<4xf32> {
  %big = stablehlo.custom_call @Sharding(%x) {mhlo.sharding = "{replicated}"} : (tensor<4xf32>) -> tensor<65536xf32>
  %c = stablehlo.constant dense<7.0> : tensor<65536xf32>
  %w = stablehlo.add %big, %c : tensor<65536xf32>
  %y = stablehlo.slice %w [0:4] : (tensor<65536xf32>) -> tensor<4xf32>
  return %y : tensor<4xf32>
} }
// -----
// name: sharding-of-another-type
// tries: An annotation that makes doubles of bytes.
// expect: refused Sharding
module @m { func.func public @main(%x: tensor<64xi8>) -> tensor<64xf64> {
  %y = stablehlo.custom_call @Sharding(%x) {mhlo.sharding = "{replicated}"} : (tensor<64xi8>) -> tensor<64xf64>
  return %y : tensor<64xf64>
} }
// -----
// name: sharding-without-operand
// tries: An annotation without an operand.
// expect: refused Sharding
module @m { func.func public @main() -> tensor<4xf32> {
  %y = stablehlo.custom_call @Sharding() {mhlo.sharding = "{replicated}"} : () -> tensor<4xf32>
  return %y : tensor<4xf32>
} }
// -----
// name: sharding-of-two-operands
// tries: An annotation with two operands of different sizes.
// expect: refused Sharding
module @m { func.func public @main(%x: tensor<4xf32>, %z: tensor<8xf32>) -> tensor<4xf32> {
  %y = stablehlo.custom_call @Sharding(%x, %z) {mhlo.sharding = "{replicated}"} : (tensor<4xf32>, tensor<8xf32>) -> tensor<4xf32>
  return %y : tensor<4xf32>
} }
// -----
// name: full-to-shard-that-grows
// tries: A turn to one position's part, which is larger than the whole.
// expect: refused SPMDFullToShardShape
module @m attributes {mhlo.num_partitions = 1 : i32} { func.func public @main(%x: tensor<4xf32>) -> tensor<65536xf32> {
  %s = stablehlo.custom_call @Sharding(%x) {mhlo.sharding = "{replicated}"} : (tensor<4xf32>) -> tensor<4xf32>
  %y = stablehlo.custom_call @SPMDFullToShardShape(%s) {mhlo.sharding = "{manual}"} : (tensor<4xf32>) -> tensor<65536xf32>
  return %y : tensor<65536xf32>
} }
// -----
// name: full-to-shard-of-two-that-grows
// tries: The same over two partitions.
// expect: refused SPMDFullToShardShape
// devices: 2
// partitions: 2
module @m attributes {mhlo.num_partitions = 2 : i32} { func.func public @main(%x: tensor<4xf32>) -> tensor<65536xf32> {
  %s = stablehlo.custom_call @Sharding(%x) {mhlo.sharding = "{devices=[2]<=[2]}"} : (tensor<4xf32>) -> tensor<4xf32>
  %y = stablehlo.custom_call @SPMDFullToShardShape(%s) {mhlo.sharding = "{manual}"} : (tensor<4xf32>) -> tensor<32768xf32>
  %z = stablehlo.custom_call @Sharding(%y) {mhlo.sharding = "{manual}"} : (tensor<32768xf32>) -> tensor<32768xf32>
  %r = stablehlo.custom_call @SPMDShardToFullShape(%z) {mhlo.sharding = "{devices=[2]<=[2]}"} : (tensor<32768xf32>) -> tensor<65536xf32>
  return %r : tensor<65536xf32>
} }
// -----
// name: shard-to-full-that-lies
// tries: A turn from one position's part to a whole that is not so many times larger.
// expect: refused SPMDShardToFullShape
// devices: 2
// partitions: 2
module @m attributes {mhlo.num_partitions = 2 : i32} { func.func public @main(%x: tensor<8xf32>) -> tensor<65536xf32> {
  %s = stablehlo.custom_call @Sharding(%x) {mhlo.sharding = "{devices=[2]<=[2]}"} : (tensor<8xf32>) -> tensor<8xf32>
  %y = stablehlo.custom_call @SPMDFullToShardShape(%s) {mhlo.sharding = "{manual}"} : (tensor<8xf32>) -> tensor<4xf32>
  %z = stablehlo.custom_call @Sharding(%y) {mhlo.sharding = "{manual}"} : (tensor<4xf32>) -> tensor<4xf32>
  %r = stablehlo.custom_call @SPMDShardToFullShape(%z) {mhlo.sharding = "{devices=[2]<=[2]}"} : (tensor<4xf32>) -> tensor<65536xf32>
  return %r : tensor<65536xf32>
} }
// -----
// name: shard-to-full-of-another-rank
// tries: A turn to a whole of another rank.
// expect: refused SPMDShardToFullShape
module @m { func.func public @main(%x: tensor<8xf32>) -> tensor<4x4x4xf32> {
  %r = stablehlo.custom_call @SPMDShardToFullShape(%x) {mhlo.sharding = "{replicated}"} : (tensor<8xf32>) -> tensor<4x4x4xf32>
  return %r : tensor<4x4x4xf32>
} }
// -----
// name: sharding-over-devices-that-are-not
// tries: A sharding over 4,096 devices in a program of one.
// expect: refused sharding
module @m { func.func public @main(%x: tensor<8192xf32>) -> tensor<8192xf32> {
  %y = stablehlo.custom_call @Sharding(%x) {mhlo.sharding = "{devices=[4096]<=[4096]}"} : (tensor<8192xf32>) -> tensor<8192xf32>
  return %y : tensor<8192xf32>
} }
// -----
// name: sharding-on-device-minus-one
// tries: A sharding on a device that does not exist.
// expect: fails
// devices: 2
// partitions: 2
module @m attributes {mhlo.num_partitions = 2 : i32} { func.func public @main(%x: tensor<8xf32>) -> tensor<8xf32> {
  %y = stablehlo.custom_call @Sharding(%x) {mhlo.sharding = "{maximal device=-7}"} : (tensor<8xf32>) -> tensor<8xf32>
  return %y : tensor<8xf32>
} }
// -----
// name: layout-constraint-that-grows
// tries: XLA's own constraint of a layout, with another shape.
// expect: refused LayoutConstraint
module @m { func.func public @main(%x: tensor<4xf32>) -> tensor<65536xf32> {
  %y = stablehlo.custom_call @LayoutConstraint(%x) : (tensor<4xf32>) -> tensor<65536xf32>
  return %y : tensor<65536xf32>
} }
// -----
// name: placement-that-grows
// tries: An annotation of a memory whose result is larger.
// expect: refused annotate_device_placement
module @m { func.func public @main(%x: tensor<4xf32>) -> tensor<65536xf32> {
  %y = stablehlo.custom_call @annotate_device_placement(%x) {has_side_effect = true, mhlo.frontend_attributes = {_xla_buffer_placement = "pinned_host"}} : (tensor<4xf32>) -> tensor<65536xf32>
  return %y : tensor<65536xf32>
} }
// -----
// name: shardy-shape-that-grows
// tries: Shardy's turn to one position's part, with a shape that lies.
// expect: refused xla.sdy.GlobalToLocalShape
module @m { func.func public @main(%x: tensor<4xf32>) -> tensor<65536xf32> {
  %y = stablehlo.custom_call @xla.sdy.GlobalToLocalShape(%x) {has_side_effect = true} : (tensor<4xf32>) -> tensor<65536xf32>
  return %y : tensor<65536xf32>
} }
// -----
// name: shardy-result-that-grows
// tries: Shardy's annotation of a result, with a shape that lies.
// expect: bounded
module @m { func.func public @main(%x: tensor<4xf32>) -> tensor<65536xf32> {
  %y = stablehlo.custom_call @xla.sdy.FuncResultSharding(%x) {has_side_effect = true} : (tensor<4xf32>) -> tensor<65536xf32>
  return %y : tensor<65536xf32>
} }
