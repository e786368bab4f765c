// What one instruction set brings: the operations of docs/numerics.md on raw memory.
//
// Every variant computes the same bits. `variant.cpp` is compiled once for each; `variants.cpp` knows them all.
#pragma once

#include <cstdint>

// Never a symbol of its own: the linker would keep one variant's for all, with instructions that others must not meet.
#define KAKEYA_LOCAL __attribute__((always_inline)) inline

namespace kakeya {

constexpr int64_t kPanel = 64;  // outputs that lie together in a packed matrix
constexpr int64_t kGroup = 64;  // inputs of an output that share a scale
constexpr int64_t kBlock = 16;  // keys that are summed one after the other
constexpr int64_t kMaxHeadDim = 256;
constexpr int64_t kFloatTileQueries = 4;     // that are attended to at a time
constexpr int64_t kIntegerTileQueries = 64;  // likewise over int8, whose blocks of keys are turned once for all of them

// How the weights of a matrix are written: in groups of 64 inputs, or as a type of GGUF's has them (blocks.h).
enum Format : int64_t { kInt8, kQ4_0, kQ4_1, kQ5_0, kQ5_1, kQ8_0, kQ4_K, kQ5_K, kQ6_K };

// A matrix, packed. In groups weight (o, i) + 128 is values[o / 64][i / 4][o % 64][i % 4]; beyond the matrix stands 128.
struct Matrix {
  const uint8_t* values;
  const uint16_t* scales;  // bfloat16: [panels, groups, 64], 0 beyond the matrix; null where blocks hold them
  const float* stretch;    // 2^exponent; [in]
  const float* bias;       // [out], or null
  int64_t out;
  int64_t in;
  int64_t format;

  KAKEYA_LOCAL int64_t num_quads() const { return (in + 3) / 4; }
  KAKEYA_LOCAL int64_t num_groups() const { return (in + kGroup - 1) / kGroup; }
};

// A linear layer: matrices over the same inputs, with the same stretch, whose outputs come one behind the other.
struct Linear {
  const Matrix* parts;
  int64_t num_parts;

  KAKEYA_LOCAL bool has_blocks() const {
    for (int64_t i = 0; i < num_parts; ++i)
      if (parts[i].format != kInt8) return true;
    return false;
  }
};

// The activations of some tokens, 16 bits each, quantized for one layer and laid out as a variant's products read them.
struct Quantized {
  static KAKEYA_LOCAL int64_t stride_for(int64_t in) { return (in + kGroup - 1) / kGroup * kGroup * 2; }

  char* values;          // [tokens, stride]
  char* bytes;           // for blocks: upper bytes, then lower ones, unless `values` are such; [tokens, stride]
  float* scales;         // [tokens]
  int32_t* corrections;  // -128 times each group's sums, of a row or of two: weights are stored 128 too large
  int16_t* sums;         // of upper and of lower bytes of each run of inputs, for blocks: [tokens, num_sums()]
  int64_t stride;        // bytes

  KAKEYA_LOCAL int64_t num_corrections() const { return stride / kGroup; }  // of a token: two a group, or half of them
  KAKEYA_LOCAL int64_t num_runs() const { return stride / 32; }             // of 16 inputs
  KAKEYA_LOCAL int64_t num_sums() const { return 3 * num_runs(); }
};

// A token's sums over each 16 inputs and over each 32.
struct RunSums {
  int16_t *upper16, *lower16, *upper32, *lower32;

  KAKEYA_LOCAL RunSums(const Quantized& x, int64_t token)
      : upper16(x.sums + token * x.num_sums()),
        lower16(upper16 + x.num_runs()),
        upper32(lower16 + x.num_runs()),
        lower32(upper32 + x.num_runs() / 2) {}

  KAKEYA_LOCAL const int16_t* upper(int inputs) const { return inputs == 16 ? upper16 : upper32; }
  KAKEYA_LOCAL const int16_t* lower(int inputs) const { return inputs == 16 ? lower16 : lower32; }

  KAKEYA_LOCAL int32_t whole32(int64_t run) const { return 256 * upper32[run] + lower32[run]; }
};

// Where a product goes: y = product, or y = y + product for a residual.
struct Target {
  float* y;        // [tokens, stride]
  int64_t stride;  // floats
  bool adds;
};

// K and V in the slab. An int8 slot is followed by its scale, a bfloat16.
enum KvType : int32_t { kBFloat16Kv, kFloat32Kv, kInt8Kv };

// The heads of one token, out of the product with q, k, v.
struct Heads {
  const float* qkv;          // [heads + 2 kv_heads, head_dim]
  const float* q_norm;       // [head_dim], or null
  const float* k_norm;
  const float* key_angle;    // cosines, then sines: [2, head_dim / 2]; null where nothing is rotated
  const float* recent_angle;
  const float* sink_angle;
  float* to_recent;          // queries; [heads, padded_head_dim], 0 beyond head_dim; over int8 as StoredQuery has them
  float* to_sinks;
  char* keys;                // of kv head 0 at the token's slot
  char* values;
  int64_t head_stride;       // bytes from one kv head to the next
};

// One row's queries against one kv head of its lane.
struct Attention {
  const float* to_recent;   // of the group's first head and the row's first query
  const float* to_sinks;
  const char* keys;         // of the lane and kv head: [slots, slot_bytes]
  const char* values;
  const int32_t* slots;     // [blocks, 16]
  const uint16_t* visible;  // one bit a key: [queries, blocks]
  int32_t num_blocks;
  int32_t num_sink_blocks;  // the first ones
  int32_t num_queries;
  float* mixed;             // [queries, heads, head_dim], of the group's first head
  float* scores;            // scratch: [tile_queries, blocks * 16]
  const Attention* next;    // what is computed after it, to be fetched meanwhile; null: nothing
};

// The shape of a model's attention.
struct HeadShape {
  int64_t num_heads;
  int64_t num_kv_heads;
  int64_t head_dim;
  float eps;
  float scale;  // 1 / sqrt(head_dim)
  int32_t kv_type;
  int64_t padded_head_dim;  // a power of two, at least 16

  KAKEYA_LOCAL int64_t group() const { return num_heads / num_kv_heads; }
  KAKEYA_LOCAL int64_t slot_bytes() const { return kv_type == kInt8Kv ? head_dim + 2 : head_dim * (kv_type == kFloat32Kv ? 4 : 2); }
  KAKEYA_LOCAL int64_t tile_queries() const { return kv_type == kInt8Kv ? kIntegerTileQueries : kFloatTileQueries; }
};

struct Variant {
  const char* name;
  // y = norm(x); scratch [size rounded up to a power of two, at least 16].
  void (*norm)(const float* x, const float* weight, float eps, int64_t size, float* y, float* scratch);
  // One token's row for a layer; x [in].
  void (*quantize)(const float* x, const Linear& layer, const Quantized& target, int64_t token);
  // silu(gate) * up out of [2, size].
  void (*swiglu)(const float* gate_up, int64_t size, float* y);
  // An embedding's row; y [in].
  void (*embed)(const Matrix& table, int64_t row, float* y);
  // Panels first_panel .. last_panel - 1 of a matrix times all tokens.
  void (*product)(const Matrix& matrix, const Quantized& x, int64_t num_tokens, int64_t first_panel, int64_t last_panel,
                  const Target& target);
  void (*heads)(const HeadShape& shape, const Heads& heads);
  // Flat queries (query * group + head of the group) first .. first + num - 1, num <= tile_queries().
  void (*attend)(const HeadShape& shape, const Attention& row, int64_t first, int64_t num);
  // The place of the highest score with its Gumbel number (draw.h); ids null: the places.
  int64_t (*draw)(const double* scores, const int64_t* ids, int64_t num, uint64_t seed, uint64_t history_index);
  // exp(x) for x <= 0, in place; for tests.
  void (*exp)(float* x, int64_t size);
};

}  // namespace kakeya
