// What is computed token by token: norms, quantization, SwiGLU, embeddings, the heads of q, k and v.
#pragma once

#include "blocks.h"
#include "integer_kv.h"

namespace kakeya {
namespace {

inline int64_t power_of_two_from(int64_t num) {
  int64_t power = kLanes;
  while (power < num) power *= 2;
  return power;
}

// The squares of x, folded by halves after padding to a power of two.
inline float fold_squares(const float* x, int64_t size, float* scratch) {
  int64_t half = power_of_two_from(size);
  if (half == kLanes) {
    F only = load_some(x, size);
    return fold(only * only);
  }
  half /= 2;
  for (int64_t i = 0; i < half; i += kLanes) {
    F low = load_some(x + i, size - i), high = load_some(x + half + i, size - half - i);
    store(scratch + i, low * low + high * high);
  }
  while (half > kLanes) {
    half /= 2;
    for (int64_t i = 0; i < half; i += kLanes) store(scratch + i, load(scratch + i) + load(scratch + half + i));
  }
  return fold(load(scratch));
}

void norm(const float* x, const float* weight, float eps, int64_t size, float* y, float* scratch) {
  const float mean = fold_squares(x, size, scratch) / static_cast<float>(size);
  const float inverse = 1.0f / __builtin_sqrtf(mean + eps);
  for (int64_t i = 0; i < size; i += kLanes)
    store_some(y + i, load_some(x + i, size - i) * inverse * load_some(weight + i, size - i), size - i);
}

// The sums of a token's runs, made of sixteen vectors of sixteen activations at once.
class RunSumsWriter {
 public:
  RunSumsWriter(const Quantized& target, int64_t token) : sums_(target, token) {}

  void add(I upper, I lower) {
    upper_[num_] = to_float(upper);  // whole numbers, and small: floats hold them
    lower_[num_] = to_float(lower);
    if (++num_ == kLanes) finish();
  }

  void finish() {
    for (int v = num_; v < kLanes; ++v) upper_[v] = lower_[v] = all(0.0f);
    write(fold_all(upper_), sums_.upper16, sums_.upper32);
    write(fold_all(lower_), sums_.lower16, sums_.lower32);
    done_ += num_;
    num_ = 0;
  }

 private:
  void write(F sums, int16_t* of16, int16_t* of32) const {
    float runs[kLanes];
    store(runs, sums);
    for (int run = 0; run < num_; ++run) of16[done_ + run] = static_cast<int16_t>(runs[run]);
    for (int run = 0; run < num_; run += 2) of32[(done_ + run) / 2] = static_cast<int16_t>(runs[run] + runs[run + 1]);
  }

  RunSums sums_;
  F upper_[kLanes], lower_[kLanes];
  int num_ = 0;
  int64_t done_ = 0;  // runs
};

void quantize(const float* x, const Linear& layer, const Quantized& target, int64_t token) {
  const Matrix& matrix = layer.parts[0];
  I most = all(0);  // as bits: they grow with the magnitude, and what is not a number is above all
  for (int64_t i = 0; i < matrix.in; i += kLanes)
    most = larger(most, as<I>(absolute(load_some(x + i, matrix.in - i) * load_some(matrix.stretch + i, matrix.in - i))));
  const float magnitude = as<float>(largest(most));
  const float inverse = magnitude < kLeastMagnitude ? 0.0f : kActivationLimit / magnitude;
  // Not a number where an activation is none or infinite: so is then all that the row makes, as in the eager form.
  target.scales[token] = not_a_number_unless_finite(magnitude / kActivationLimit);
  int32_t* corrections = target.corrections + token * target.num_corrections();
  const bool has_blocks = layer.has_blocks();
  RunSumsWriter sums(target, token);
  for (int64_t first = 0; first < matrix.in; first += kGroup, corrections += kTokenRows) {  // rows have room for whole groups
    I upper_sum = all(0), lower_sum = all(0);
    for (int64_t i = first; i < first + kGroup; i += kLanes) {
      I whole = round_to_int(load_some(x + i, matrix.in - i) * load_some(matrix.stretch + i, matrix.in - i) * inverse);
      const I upper = (whole + 128) >> 8, lower = whole - (upper << 8);
      upper_sum = upper_sum + (kTokenRows == 2 ? upper : whole);
      lower_sum = lower_sum + lower;
      store_activations(target.values + token * target.stride, target.stride, i, whole, upper, lower);
      if (!has_blocks) continue;
      sums.add(upper, lower);
      if (kTokenRows == 2) continue;
      char* bytes = byte_rows(target) + token * target.stride + i;
      store_bytes(bytes, upper);
      store_bytes(bytes + target.stride / 2, lower);
    }
    corrections[0] = -128 * total(upper_sum);
    if (kTokenRows == 2) corrections[1] = -128 * total(lower_sum);
  }
  if (has_blocks) sums.finish();
}

void swiglu(const float* gate_up, int64_t size, float* y) {
  for (int64_t i = 0; i < size; i += kLanes) {
    F gate = load_some(gate_up + i, size - i), up = load_some(gate_up + size + i, size - i);
    F e = exp_of(all(0.0f) - absolute(gate));
    F numerator = select(is_at_least(gate, all(0.0f)), all(1.0f), e);
    store_some(y + i, gate * (numerator / (e + 1.0f)) * up, size - i);
  }
}

void embed(const Matrix& table, int64_t row, float* y) {
  if (table.format != kInt8)
    return with_blocks(table.format, [&](auto blocks) { embed_blocks<decltype(blocks)>(table, row, y); });
  const uint8_t* quads = table.values + (row / kPanel * table.num_quads() * kPanel + row % kPanel) * 4;
  const uint16_t* scales = table.scales + row / kPanel * table.num_groups() * kPanel + row % kPanel;
  for (int64_t i = 0; i < table.in; ++i) {
    const float scale = as<float>(static_cast<uint32_t>(scales[i / kGroup * kPanel]) << 16);
    y[i] = static_cast<float>(quads[i / 4 * kPanel * 4 + i % 4] - 128) * scale * table.stretch[i];
  }
}

// Halves are rotated as (a cos - b sin, b cos + a sin).
inline void rotate(const float* head, const float* angle, int64_t head_dim, float* rotated) {
  const int64_t half = head_dim / 2;
  const float *cos = angle, *sin = angle + half;
  for (int64_t i = 0; i < half; ++i) {
    const float a = head[i], b = head[half + i];
    rotated[i] = a * cos[i] - b * sin[i];
    rotated[half + i] = b * cos[i] + a * sin[i];
  }
}

inline void copy(const float* from, int64_t num, float* to) { std::memcpy(to, from, num * sizeof(float)); }

// Normed where there is a norm, into [head_dim].
inline void prepare_head(const HeadShape& shape, const float* head, const float* weight, float* prepared) {
  float scratch[kMaxHeadDim];
  if (weight == nullptr) copy(head, shape.head_dim, prepared);
  else norm(head, weight, shape.eps, shape.head_dim, prepared, scratch);
}

inline void rotate_or_copy(const float* head, const float* angle, int64_t head_dim, float* rotated) {
  if (angle == nullptr) copy(head, head_dim, rotated);
  else rotate(head, angle, head_dim, rotated);
}

// Queries and keys are turned before they become integers, so that no channel is much larger than the others.
inline void integer_heads(const HeadShape& shape, const Heads& heads) {
  const int64_t d = shape.head_dim, padded = shape.padded_head_dim;
  float prepared[kMaxHeadDim], rotated[kMaxHeadDim];
  const float* head = heads.qkv;
  for (int64_t h = 0; h < shape.num_heads; ++h, head += d) {
    prepare_head(shape, head, heads.q_norm, prepared);
    const auto store_rotated = [&](const float* angle, float* queries) {
      rotate_or_copy(prepared, angle, d, rotated);
      spread(rotated, d);
      store_query(rotated, d, queries + h * padded, padded);
    };
    store_rotated(heads.recent_angle, heads.to_recent);
    store_rotated(heads.sink_angle, heads.to_sinks);
  }
  for (int64_t h = 0; h < shape.num_kv_heads; ++h, head += d) {
    prepare_head(shape, head, heads.k_norm, prepared);
    rotate_or_copy(prepared, heads.key_angle, d, rotated);
    spread(rotated, d);
    store_slot(rotated, d, heads.keys + h * heads.head_stride);
  }
  for (int64_t h = 0; h < shape.num_kv_heads; ++h, head += d) store_slot(head, d, heads.values + h * heads.head_stride);
}

template <class KV>
inline void round_head(const float* head, int64_t head_dim, char* slot) {
  auto* stored = reinterpret_cast<typename KV::Stored*>(slot);
  for (int64_t i = 0; i < head_dim; ++i) stored[i] = KV::round(head[i]);
}

template <class KV>
inline void all_heads(const HeadShape& shape, const Heads& heads) {
  const int64_t d = shape.head_dim, padded = shape.padded_head_dim;
  float prepared[kMaxHeadDim], rotated[kMaxHeadDim];
  const float* head = heads.qkv;
  for (int64_t h = 0; h < shape.num_heads; ++h, head += d) {
    prepare_head(shape, head, heads.q_norm, prepared);
    rotate_or_copy(prepared, heads.recent_angle, d, heads.to_recent + h * padded);
    rotate_or_copy(prepared, heads.sink_angle, d, heads.to_sinks + h * padded);
  }
  for (int64_t h = 0; h < shape.num_kv_heads; ++h, head += d) {
    prepare_head(shape, head, heads.k_norm, prepared);
    rotate_or_copy(prepared, heads.key_angle, d, rotated);
    round_head<KV>(rotated, d, heads.keys + h * heads.head_stride);
  }
  for (int64_t h = 0; h < shape.num_kv_heads; ++h, head += d) round_head<KV>(head, d, heads.values + h * heads.head_stride);
}

void heads(const HeadShape& shape, const Heads& heads) {
  switch (shape.kv_type) {
    case kInt8Kv: return integer_heads(shape, heads);
    case kFloat32Kv: return all_heads<Float32>(shape, heads);
    default: return all_heads<BFloat16>(shape, heads);
  }
}

void exp_in_place(float* x, int64_t size) {
  for (int64_t i = 0; i < size; i += kLanes) store_some(x + i, exp_of(load_some(x + i, size - i)), size - i);
}

}  // namespace
}  // namespace kakeya
