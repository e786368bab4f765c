// The C interface: what Python calls. Pointers are borrowed and must live as long as the decoder that got them.
//
// `kakeya_decoder_*` run a model, `kakeya_draw` chooses a token. `kakeya_op_*` run one operation of docs/numerics.md by itself, to be compared with the
// eager form.
#include <exception>
#include <new>
#include <vector>

#include "decoder.h"
#include "variants.h"

#define KAKEYA_API extern "C" __attribute__((visibility("default")))

using namespace kakeya;

KAKEYA_API const char* kakeya_variants() { return variant_names(); }

// Null where the variant is unknown or does not run here.
KAKEYA_API const Variant* kakeya_variant(const char* name) { return find_variant(name); }

// Null where the system gives no more threads or memory.
KAKEYA_API Decoder* kakeya_decoder_new(const Model* model, const Variant* variant, int num_threads) {
  try {
    return new Decoder(*model, *variant, num_threads);
  } catch (const std::exception&) {
    return nullptr;
  }
}

KAKEYA_API void kakeya_decoder_free(Decoder* decoder) { delete decoder; }

KAKEYA_API void kakeya_decoder_bind(Decoder* decoder, const Slab* slab) { decoder->bind(*slab); }

// Whether there was memory for it.
KAKEYA_API int kakeya_decoder_forward(Decoder* decoder, const Step* step) {
  try {
    decoder->forward(*step);
    return 1;
  } catch (const std::bad_alloc&) {
    return 0;
  }
}

// As kakeya_decoder_forward.
KAKEYA_API int kakeya_decoder_logits(Decoder* decoder, const float* hidden, const int64_t* indices, int64_t num,
                                     float* logits) {
  try {
    decoder->logits(hidden, indices, num, logits);
    return 1;
  } catch (const std::bad_alloc&) {
    return 0;
  }
}

// What Python and this library must agree on, for Python to compare: the sizes of the structs that it fills, and constants.
KAKEYA_API int64_t kakeya_layout(int index) {
  const int64_t layout[] = {sizeof(Matrix), sizeof(Linear), sizeof(HeadShape), sizeof(Layer),     sizeof(Model),
                            sizeof(Slab),   sizeof(StepRow), sizeof(Step),     sizeof(Heads),    sizeof(Attention),
                            kPanel,         kGroup,          kBlock,           kMaxHeadDim,      kFloatTileQueries, kIntegerTileQueries};
  return layout[index];
}

KAKEYA_API void kakeya_op_angle(const double* frequencies, int64_t half_head_dim, int64_t position, float* angle) {
  set_angle(frequencies, half_head_dim, position, angle);
}

KAKEYA_API void kakeya_op_norm(const Variant* variant, const float* x, const float* weight, float eps, int64_t num_rows,
                               int64_t size, float* y) {
  int64_t power = 16;
  while (power < size) power *= 2;
  std::vector<float> scratch(power);
  for (int64_t row = 0; row < num_rows; ++row)
    variant->norm(x + row * size, weight, eps, size, y + row * size, scratch.data());
}

// y = (y +) matrix x on the caller's thread: a panel at a time, as threads take them.
KAKEYA_API void kakeya_op_linear(const Variant* variant, const Matrix* matrix, const float* x, int64_t num_tokens, int adds,
                                 float* y) {
  const Linear linear = {matrix, 1};
  Buffer<char> values, bytes;
  Buffer<float> scales;
  Buffer<int32_t> corrections;
  Buffer<int16_t> sums;
  Quantized quantized = {};
  quantized.stride = Quantized::stride_for(matrix->in);
  quantized.values = values.reserve(num_tokens * quantized.stride);
  quantized.bytes = bytes.reserve(num_tokens * quantized.stride);
  quantized.scales = scales.reserve(num_tokens);
  quantized.corrections = corrections.reserve(num_tokens * quantized.num_corrections());
  quantized.sums = sums.reserve(num_tokens * quantized.num_sums());
  for (int64_t token = 0; token < num_tokens; ++token) variant->quantize(x + token * matrix->in, linear, quantized, token);
  for (int64_t panel = 0; panel * kPanel < matrix->out; ++panel)
    variant->product(*matrix, quantized, num_tokens, panel, panel + 1, {y, matrix->out, adds != 0});
}

KAKEYA_API void kakeya_op_embed(const Variant* variant, const Matrix* table, const int64_t* rows, int64_t num_rows, float* y) {
  for (int64_t i = 0; i < num_rows; ++i) variant->embed(*table, rows[i], y + i * table->in);
}

KAKEYA_API void kakeya_op_swiglu(const Variant* variant, const float* gate_up, int64_t num_rows, int64_t size, float* y) {
  for (int64_t row = 0; row < num_rows; ++row) variant->swiglu(gate_up + row * 2 * size, size, y + row * size);
}

KAKEYA_API int64_t kakeya_draw(const Variant* variant, const double* scores, const int64_t* ids, int64_t num, uint64_t seed,
                               uint64_t history_index) {
  return variant->draw(scores, ids, num, seed, history_index);
}

KAKEYA_API void kakeya_op_exp(const Variant* variant, float* x, int64_t size) { variant->exp(x, size); }

KAKEYA_API void kakeya_op_heads(const Variant* variant, const HeadShape* shape, const Heads* heads) {
  variant->heads(*shape, *heads);
}

// All queries of a row, for one kv head; scores [tile_queries, blocks * 16].
KAKEYA_API void kakeya_op_attend(const Variant* variant, const HeadShape* shape, const Attention* row) {
  const int64_t num = row->num_queries * shape->group(), at_once = shape->tile_queries();
  for (int64_t first = 0; first < num; first += at_once)
    variant->attend(*shape, *row, first, num - first < at_once ? num - first : at_once);
}
