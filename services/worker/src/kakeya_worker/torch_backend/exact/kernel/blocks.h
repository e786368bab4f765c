// The exact product of GGUF's blocks with quantized activations, for each instruction set.
//
// Weights are unsigned, of 4, 5, 6 or 8 bits, in units of 32 inputs. A run's product is exact in 32 bits, and so it is times
// the run's scale. Sums of these are not: their upper and lower halves are summed apart, and become a float by one rounding.
#pragma once

#include "product.h"

namespace kakeya {
namespace {

constexpr int64_t kUnit = 32;  // inputs
constexpr int kPanelParts = kPanel / kPartLanes;

// One of GGUF's types: a scale for each kSub * kSubs inputs. Where kSubs > 1, each kSub inputs have a whole one in it, too.
//
// A panel of 64 outputs lies in memory block after block, and a block is
//   float16 scales [64]; float16 offsets [64] where there are minima;
//   where kSubs > 1, int8 sub-scales [kSubs / 2, 64, 2]; minima alike;
//   units: of the low four bits [4, 64, 4], of quads 2 s in a byte's lower half and of quads 2 s + 1 in its upper half;
//     then fifth bits [64, 4], of quad q in bit q; or fifth and sixth ones [2, 64, 4], of quad 4 h + q in bits 2 q.
//     Eight bits are [8, 64, 4].
template <int kBits_, int kSub_, int kSubs_, int kZero_, bool kHasMinima_>
struct Blocks {
  static constexpr int kBits = kBits_, kSub = kSub_, kSubs = kSubs_;
  static constexpr int kZero = kZero_;  // is taken from each weight
  static constexpr bool kHasMinima = kHasMinima_;
  static constexpr int64_t kUnits = kSub * kSubs / kUnit;
  static constexpr int64_t kScaleBytes = kPanel * 2, kSubBytes = kSubs > 1 ? kPanel * kSubs : 0;
  static constexpr int64_t kHeadBytes = (kScaleBytes + kSubBytes) * (kHasMinima ? 2 : 1);
  static constexpr int64_t kUnitBytes = kPanel * kUnit * kBits / 8;
  static constexpr int64_t kBytes = kHeadBytes + kUnits * kUnitBytes;

  static KAKEYA_LOCAL int64_t panel_bytes(const Matrix& matrix) { return matrix.in / (kUnit * kUnits) * kBytes; }
};

// Calls act(Blocks<...>{}) with a matrix's.
template <class Act>
KAKEYA_LOCAL void with_blocks(int64_t format, const Act& act) {
  switch (format) {
    case kQ4_0: return act(Blocks<4, 32, 1, 8, false>{});
    case kQ4_1: return act(Blocks<4, 32, 1, 0, true>{});
    case kQ5_0: return act(Blocks<5, 32, 1, 16, false>{});
    case kQ5_1: return act(Blocks<5, 32, 1, 0, true>{});
    case kQ8_0: return act(Blocks<8, 32, 1, 128, false>{});
    case kQ4_K: return act(Blocks<4, 32, 8, 0, true>{});
    case kQ5_K: return act(Blocks<5, 32, 8, 0, true>{});
    case kQ6_K: return act(Blocks<6, 16, 16, 32, false>{});
  }
}

inline UIntPart load_bytes(const uint8_t* from) {
  UIntPart bytes;
  std::memcpy(&bytes, from, sizeof bytes);
  return bytes;
}

// A quad of a unit for a part of a panel's outputs, where `unit` points: a byte a weight.
template <class Format>
KAKEYA_LOCAL UIntPart unpacked(const uint8_t* unit, int quad) {
  if constexpr (Format::kBits == 8) return load_bytes(unit + quad * kPanel * 4);
  const UIntPart packed = load_bytes(unit + quad / 2 * kPanel * 4);
  UIntPart weights = (quad % 2 == 0 ? packed : packed >> 4) & 0x0F0F0F0Fu;
  const uint8_t* above = unit + kPanel * kUnit / 2;
  if constexpr (Format::kBits == 5) {
    const UIntPart high = load_bytes(above);
    weights |= (quad < 4 ? high << (4 - quad) : high >> (quad - 4)) & 0x10101010u;
  }
  if constexpr (Format::kBits == 6) {
    const UIntPart high = load_bytes(above + quad / 4 * kPanel * 4);
    weights |= (quad % 4 < 2 ? high << (4 - quad % 4 * 2) : high >> (quad % 4 * 2 - 4)) & 0x30303030u;
  }
  return weights;
}

// Two numbers of 16 bits in each lane: the sum of both products.
inline IntPart multiply_pairs(IntPart x, IntPart y) {
#if defined(__AVX512F__)
  return (IntPart)_mm512_madd_epi16((__m512i)x, (__m512i)y);
#elif defined(__AVX2__)
  return (IntPart)_mm256_madd_epi16((__m256i)x, (__m256i)y);
#else
  return ((x << 16) >> 16) * ((y << 16) >> 16) + (x >> 16) * (y >> 16);
#endif
}

// Pairs of int8 as pairs of 16 bits.
inline IntPart load_pairs(const uint8_t* from) {
#if defined(__AVX512F__)
  return (IntPart)_mm512_cvtepi8_epi16(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(from)));
#elif defined(__AVX2__)
  return (IntPart)_mm256_cvtepi8_epi16(_mm_loadu_si128(reinterpret_cast<const __m128i*>(from)));
#else
  IntPart pairs;
  for (int lane = 0; lane < kPartLanes; ++lane) {
    const auto first = static_cast<int8_t>(from[2 * lane]), second = static_cast<int8_t>(from[2 * lane + 1]);
    pairs[lane] = static_cast<int32_t>(static_cast<uint16_t>(first) | static_cast<uint32_t>(second) << 16);
  }
  return pairs;
#endif
}

inline IntPart one_of(IntPart pairs, bool second) { return second ? pairs >> 16 : (pairs << 16) >> 16; }

inline IntPart all_pairs(const int16_t* pair) {
  int32_t both;
  std::memcpy(&both, pair, sizeof both);
  return IntPart{} + both;
}

// What a block's products with a token come to: 65536 * upper + lower; what its minima come to with the token's sums.
struct Products {
  IntPart upper = {}, lower = {};
  IntPart minima_upper = {}, minima_lower = {};

  // By one rounding.
  FloatPart value() const {
    typedef double Doubles __attribute__((vector_size(2 * kVectorBytes)));
    return __builtin_convertvector(
        __builtin_convertvector(upper, Doubles) * 65536.0 + __builtin_convertvector(lower, Doubles), FloatPart);
  }
  FloatPart minima() const { return __builtin_convertvector((minima_upper << 8) + minima_lower, FloatPart); }
};

// The products of a run of a unit with some tokens, for some parts of a panel's outputs; exact.
template <class Format, int kTokens, int kTileParts>
KAKEYA_LOCAL void multiply_run(const uint8_t* unit, int64_t input, int run, const Quantized& x, int64_t token,
                               IntPart (&whole)[kTokens][kTileParts]) {
  constexpr int kQuads = Format::kSub / 4;
  IntPart tile[kTokens * kTokenRows][kTileParts];
#pragma GCC unroll 8
  for (int t = 0; t < kTokens; ++t) {
    const int32_t correction = -Format::kZero * RunSums(x, token + t).whole(input / Format::kSub + run, Format::kSub);
#pragma GCC unroll 8
    for (int p = 0; p < kTileParts; ++p) {
      tile[t * kTokenRows + kTokenRows - 1][p] = IntPart{} + correction;
      if (kTokenRows == 2) tile[t * kTokenRows][p] = IntPart{};
    }
  }
  const char* rows = x.values + token * x.stride;
#pragma GCC unroll 8
  for (int quad = run * kQuads; quad < (run + 1) * kQuads; ++quad) {
    Weights weights[kTileParts];
#pragma GCC unroll 8
    for (int p = 0; p < kTileParts; ++p) weights[p] = Weights(unpacked<Format>(unit + p * kVectorBytes, quad));
#pragma GCC unroll 8
    for (int row = 0; row < kTokens * kTokenRows; ++row) {
      const Activations activations(rows + row * (x.stride / kTokenRows), input / 4 + quad);
#pragma GCC unroll 8
      for (int p = 0; p < kTileParts; ++p) tile[row][p] = multiply_add(tile[row][p], weights[p], activations);
    }
  }
#pragma GCC unroll 8
  for (int t = 0; t < kTokens; ++t)
#pragma GCC unroll 8
    for (int p = 0; p < kTileParts; ++p) {
      const IntPart* of = tile[t * kTokenRows] + p;
      whole[t][p] = kTokenRows == 2 ? (of[0] << 8) + of[kTileParts] : of[0];
    }
}

// Adds a block's products with some tokens for some parts of a panel's outputs, times its scales.
//
// Meanwhile lines of 64 bytes are fetched from `lines` on, if that is not null.
template <class Format, int kTokens, int kTileParts>
inline void add_block(const uint8_t* block, int part, const Quantized& x, int64_t token, int64_t first_input, const char* lines,
                      Sums* sums) {
  constexpr int64_t kShares = kPanelParts / kTileParts * Format::kUnits, kLines = (Format::kBytes / 64 + kShares - 1) / kShares;
  constexpr int kRuns = kUnit / Format::kSub;  // of a unit
  const uint8_t* subs = block + Format::kScaleBytes * (Format::kHasMinima ? 2 : 1) + part * kPartLanes * 2;
  const uint8_t* units = block + Format::kHeadBytes + part * kVectorBytes;
  const auto* halves = reinterpret_cast<const uint16_t*>(block) + part * kPartLanes;
  Products products[Format::kSubs > 1 ? kTokens : 1][Format::kSubs > 1 ? kTileParts : 1];
  for (int64_t u = 0; u < Format::kUnits; ++u) {
    if (lines != nullptr) {
#pragma GCC unroll 16
      for (int64_t line = 0; line < kLines; ++line)
        __builtin_prefetch(lines + ((part / kTileParts * Format::kUnits + u) * kLines + line) * 64, 0, 2);
    }
    const int64_t input = first_input + u * kUnit;
#pragma GCC unroll 2
    for (int run = 0; run < kRuns; ++run) {
      IntPart whole[kTokens][kTileParts];
      multiply_run<Format, kTokens, kTileParts>(units + u * Format::kUnitBytes, input, run, x, token, whole);
#pragma GCC unroll 8
      for (int p = 0; p < kTileParts; ++p) {
        if constexpr (Format::kSubs > 1) {
          const int64_t number = u * kRuns + run;
          const uint8_t* pairs = subs + (number / 2 * kPanel + p * kPartLanes) * 2;
          const IntPart scale = one_of(load_pairs(pairs), number % 2 == 1);
#pragma GCC unroll 8
          for (int t = 0; t < kTokens; ++t) {
            const IntPart scaled = whole[t][p] * scale;
            products[t][p].upper += scaled >> 16;
            products[t][p].lower += scaled & 0xFFFF;
          }
          if (Format::kHasMinima && number % 2 == 0) {
            const IntPart minima = load_pairs(pairs + Format::kSubBytes);
#pragma GCC unroll 8
            for (int t = 0; t < kTokens; ++t) {
              const RunSums of(x, token + t);
              products[t][p].minima_upper += multiply_pairs(minima, all_pairs(of.upper32 + input / kUnit));
              products[t][p].minima_lower += multiply_pairs(minima, all_pairs(of.lower32 + input / kUnit));
            }
          }
        } else {
          const FloatPart scale = Float16::load_part(halves + p * kPartLanes);
#pragma GCC unroll 8
          for (int t = 0; t < kTokens; ++t) {
            FloatPart& y = sums[t].part(part + p);
            y = y + __builtin_convertvector(whole[t][p], FloatPart) * scale;
            if constexpr (Format::kHasMinima)
              y = y + static_cast<float>(RunSums(x, token + t).whole(input / kUnit, kUnit)) *
                          Float16::load_part(halves + kPanel + p * kPartLanes);
          }
        }
      }
    }
  }
  if constexpr (Format::kSubs > 1) {
#pragma GCC unroll 8
    for (int p = 0; p < kTileParts; ++p) {
      const FloatPart scale = Float16::load_part(halves + p * kPartLanes);
#pragma GCC unroll 8
      for (int t = 0; t < kTokens; ++t) {
        FloatPart& y = sums[t].part(part + p);
        y = y + products[t][p].value() * scale;
        if constexpr (Format::kHasMinima)
          y = y - products[t][p].minima() * Float16::load_part(halves + kPanel + p * kPartLanes);
      }
    }
  }
}

template <class Format, int kTokens>
inline void block_tile(const Matrix& matrix, int64_t panel, const Quantized& x, int64_t token, const Target& target) {
  const int64_t num_bytes = Format::panel_bytes(matrix);
  const uint8_t* blocks = matrix.values + panel * num_bytes;
  Sums sums[kTokens] = {};
  constexpr int64_t kAhead = Format::kBytes > kPrefetchBytes ? Format::kBytes : kPrefetchBytes;
  constexpr int kTileParts = tile_vectors(kTokens) * kParts;
  for (int64_t at = 0, input = 0; at < num_bytes; at += Format::kBytes, input += kUnit * Format::kUnits) {
    const char* ahead = token == 0 ? reinterpret_cast<const char*>(blocks) + at + kAhead : nullptr;
    for (int part = 0; part < kPanelParts; part += kTileParts)
      add_block<Format, kTokens, kTileParts>(blocks + at, part, x, token, input, ahead, sums);
  }
  for (int t = 0; t < kTokens; ++t)
    finish(matrix, panel, sums[t], x.scales[token + t], target.y + (token + t) * target.stride, target.adds);
}

template <class Format>
void block_product(const Matrix& matrix, const Quantized& x, int64_t num_tokens, int64_t first_panel, int64_t last_panel,
                   const Target& target) {
  for (int64_t panel = first_panel; panel < last_panel; ++panel) {
    int64_t token = 0;
    for (; num_tokens - token >= kTileTokens; token += kTileTokens)
      block_tile<Format, kTileTokens>(matrix, panel, x, token, target);
    if constexpr (kTileTokens > 2)
      for (; num_tokens - token >= 2; token += 2) block_tile<Format, 2>(matrix, panel, x, token, target);
    if constexpr (kTileTokens > 1)
      for (; token < num_tokens; ++token) block_tile<Format, 1>(matrix, panel, x, token, target);
  }
}

// The weight of a unit's quad, where `unit` points to the byte of its first quad.
template <class Format>
KAKEYA_LOCAL int32_t weight_of(const uint8_t* unit, int64_t quad) {
  if constexpr (Format::kBits == 8) return unit[quad * kPanel * 4];
  const int32_t low = unit[quad / 2 * kPanel * 4] >> (quad % 2 * 4) & 15;
  const uint8_t* above = unit + kPanel * kUnit / 2;
  if constexpr (Format::kBits == 5) return low | (above[0] >> quad & 1) << 4;
  if constexpr (Format::kBits == 6) return low | (above[quad / 4 * kPanel * 4] >> (quad % 4 * 2) & 3) << 4;
  return low;
}

// One row of a table; y [in].
template <class Format>
void embed_blocks(const Matrix& table, int64_t row, float* y) {
  const uint8_t* block = table.values + row / kPanel * Format::panel_bytes(table);
  const int64_t lane = row % kPanel;
  for (int64_t first = 0; first < table.in; first += kUnit * Format::kUnits, block += Format::kBytes) {
    const auto* halves = reinterpret_cast<const uint16_t*>(block) + lane;
    const uint8_t* subs = block + Format::kScaleBytes * (Format::kHasMinima ? 2 : 1) + lane * 2;
    for (int64_t i = 0; i < kUnit * Format::kUnits; ++i) {
      const uint8_t* unit = block + Format::kHeadBytes + i / kUnit * Format::kUnitBytes + lane * 4 + i % 4;
      const int64_t sub = i / Format::kSub, of_pair = sub / 2 * kPanel * 2 + sub % 2;
      const int32_t scale = Format::kSubs > 1 ? static_cast<int8_t>(subs[of_pair]) : 1;
      float& weight = y[first + i];
      weight = static_cast<float>(scale * (weight_of<Format>(unit, i % kUnit / 4) - Format::kZero)) * Float16::one(halves[0]);
      if constexpr (Format::kHasMinima) {
        const float offset = Float16::one(halves[kPanel]);
        if constexpr (Format::kSubs > 1) weight = weight - static_cast<float>(subs[Format::kSubBytes + of_pair]) * offset;
        else weight = weight + offset;
      }
    }
  }
}

// Panels first_panel .. last_panel - 1 of a matrix times all tokens.
void product(const Matrix& matrix, const Quantized& x, int64_t num_tokens, int64_t first_panel, int64_t last_panel,
             const Target& target) {
  if (matrix.format == kInt8) return int8_product(matrix, x, num_tokens, first_panel, last_panel, target);
  with_blocks(matrix.format, [&](auto blocks) {
    block_product<decltype(blocks)>(matrix, x, num_tokens, first_panel, last_panel, target);
  });
}

}  // namespace
}  // namespace kakeya
