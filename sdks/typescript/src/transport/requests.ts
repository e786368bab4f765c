/** Requests of several parts, checked before they are sent. */

import { create } from "@bufbuild/protobuf";

import * as wire from "../_generated/kakeya/v1/runtime_pb.js";
import type { SamplingOptions } from "../client/options.js";
import { Grammar, Reasoning } from "../grammar.js";
import { placeKindToWire, type PlaceKind } from "../results/sessions.js";
import { fill, invalid, iterable, numbered, tagList, tokenList } from "./fields.js";

/** The options by which tokens are chosen; any other is a mistake. */
const SAMPLING: Readonly<Record<keyof SamplingOptions, true>> = {
  grammar: true,
  reasoning: true,
  temperature: true,
  topP: true,
  topK: true,
  minP: true,
  presencePenalty: true,
  frequencyPenalty: true,
  logitBias: true,
  seed: true,
  stopTokenSequences: true,
  logprobs: true,
  repetitionPenalty: true,
  minTokens: true,
  ignoreEos: true,
};

/** Whether an option is one of those by which tokens are chosen. */
export function isSampling(name: string): boolean {
  return name in SAMPLING;
}

/**
 * A Generate of a session, "" for one that is not known yet.
 *
 * @throws InvalidField, TokenOutOfVocabulary, RangeError: as `fill`. TypeError: there is no such option.
 */
export function generateRequest(
  sessionId: string,
  maxTokens: number,
  { logitBias, stopTokenSequences, grammar, reasoning, ...fields }: SamplingOptions,
): wire.GenerateRequest {
  const unknown = Object.keys(fields).filter((name) => !isSampling(name));
  if (unknown.length > 0) {
    throw new TypeError(`there is no option ${unknown.join(", ")}`);
  }
  const request = create(wire.GenerateRequestSchema, { sessionId });
  fill(wire.GenerateRequestSchema, request, { maxTokens, ...fields });
  request.logitBias = biases(logitBias ?? {});
  for (const sequence of iterable(stopTokenSequences ?? [], "stop_token_sequences")) {
    const tokenIds = tokenList(sequence, "stop_token_sequences");
    request.stopTokenSequences.push(create(wire.TokenSequenceSchema, { tokenIds }));
  }
  if (grammar !== undefined) {
    request.grammar = made("grammar", Grammar, grammar).wire;
  }
  if (reasoning !== undefined) {
    request.reasoning = made("reasoning", Reasoning, reasoning).wire;
  }
  return request;
}

/**
 * A TagTurn.
 *
 * @throws InvalidField, RangeError
 */
export function tagRequest(
  sessionId: string,
  kind: PlaceKind,
  historyLength: number,
  tags: Iterable<Uint8Array>,
  opId: string,
): wire.TagTurnRequest {
  const place = create(wire.HistoryPlaceSchema, { kind: placeKindToWire(kind) });
  fill(wire.HistoryPlaceSchema, place, { historyLength });
  const request = create(wire.TagTurnRequestSchema, { place, tags: tagList(tags) });
  return fill(wire.TagTurnRequestSchema, request, { sessionId, opId });
}

function biases(given: NonNullable<SamplingOptions["logitBias"]>): Record<number, number> {
  const entries = numbered<unknown>(given);
  tokenList(
    entries.map(([id]) => id),
    "logit_bias",
  );
  if (!entries.every((entry): entry is [number, number] => typeof entry[1] === "number")) {
    throw invalid("logit_bias", "maps token ids to numbers");
  }
  return Object.fromEntries(entries);
}

function made<T>(field: string, kind: new (...parts: never[]) => T, given: T): T {
  if (!(given instanceof kind)) {
    throw invalid(field, `make it by ${kind.name}`);
  }
  return given;
}
