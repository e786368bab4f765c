/**
 * Kakeya: sessions that live on the server, with bounded KV. The client sends only new tokens.
 *
 * @packageDocumentation
 */

export {
  Admin,
  type AdminListOptions,
  type AdminSession,
  type CreateKeyOptions,
  type CreateTokenOptions,
  type DrainOptions,
  type Key,
  type Quota,
  type Scope,
  type Tenant,
  type Token,
  type WorkerStatus,
} from "./client/admin.js";
export { Client } from "./client/client.js";
export { Generation } from "./client/generation.js";
export type * from "./client/options.js";
export { Session } from "./client/session.js";
export * from "./errors.js";
export { Grammar, Reasoning, type ReasoningOptions } from "./grammar.js";
export type {
  FoundSession,
  ListedSession,
  OverflowPolicy,
  ParkResult,
  PlaceKind,
  ServedModel,
  SessionInfo,
  SessionState,
} from "./results/sessions.js";
export type {
  AppendResult,
  GenerateResult,
  RewindResult,
  Sight,
  StopReason,
  TokenDetail,
  TokenLogprob,
  TokenRange,
  Truncation,
} from "./results/turns.js";
export {
  WatchedRuntime,
  type FleetSums,
  type LastTurn,
  type PoolQueue,
  type WatchedSession,
  type WatchedWorker,
  type WatchEvent,
} from "./results/watched.js";
export type { TokenIds } from "./transport/fields.js";
export { tlsCredentials, type TlsFiles } from "./transport/tls.js";
