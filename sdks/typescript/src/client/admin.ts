/** Calls of the operators' service. */

import { create, type DescMessage, type MessageShape } from "@bufbuild/protobuf";

import * as wire from "../_generated/kakeya/admin/v1/admin_pb.js";
import { number64 } from "../results/number64.js";
import { plain, type Plain } from "../results/plain.js";
import { fill } from "../transport/fields.js";
import type { UnaryMethod } from "../transport/transport.js";
import type { Calls } from "./calls.js";
import type { CallOptions } from "./options.js";

const { method } = wire.AdminService;

/** What a key is good for: its tenant's sessions, or the operators' calls. */
export type Scope = "sessions" | "admin";

/** A key of a tenant, without its secret. */
export type Key = Plain<wire.Key>;

/** A token with which workers join, without its secret. */
export type Token = Plain<wire.Token>;

/** What a tenant may use in each pool; 0: no limit. */
export type Quota = Plain<wire.Quota>;

/** A tenant, what it may use and what it uses. */
export type Tenant = Plain<wire.Tenant>;

/** A session of any tenant. */
export type AdminSession = Plain<wire.Session>;

/** A worker, its slab and its part of the byte ledger. */
export type WorkerStatus = Plain<wire.WorkerStatus>;

/** Of a key. */
export interface CreateKeyOptions extends CallOptions {
  /** What it is good for; left out: sessions. */
  readonly scopes?: readonly Scope[] | undefined;
  /** Free text for the operator's eyes, at most 256 bytes. */
  readonly label?: string | undefined;
  /** Left out: it does not expire. */
  readonly expiresInSeconds?: number | undefined;
}

/** Of a token. */
export interface CreateTokenOptions extends CallOptions {
  /** The only pool that it admits to; left out: any. */
  readonly pool?: string | undefined;
  /** The only worker that it admits; left out: any. */
  readonly workerId?: string | undefined;
  /** The only model that it admits; left out: any. A pool alone does not say what its workers may serve. */
  readonly model?: string | undefined;
  /** Free text for the operator's eyes, at most 256 bytes. */
  readonly label?: string | undefined;
  /** Left out: it does not expire. */
  readonly expiresInSeconds?: number | undefined;
}

/** Of a list of sessions. */
export interface AdminListOptions extends CallOptions {
  /** Left out: of all tenants. */
  readonly tenant?: string | undefined;
  /** Left out: in all pools. */
  readonly pool?: string | undefined;
}

/** Of `drainWorker`. */
export interface DrainOptions extends CallOptions {
  /** Left out: the only pool that has a worker of this name. */
  readonly pool?: string | undefined;
  /** It takes sessions again. */
  readonly undo?: boolean | undefined;
}

/**
 * What operators do: it needs a key with the scope "admin" wherever keys are needed at all. Comes as `admin` of a client.
 *
 * Each call throws a KakeyaError: PermissionDenied where the key is good for something else, InvalidField, ...
 */
export class Admin {
  readonly #calls: Calls;

  /** @internal */
  constructor(calls: Calls) {
    this.#calls = calls;
  }

  /** Makes a key for a tenant. Its `secret` is in this answer and nowhere else. */
  async createKey(tenant: string, options: CreateKeyOptions = {}): Promise<{ key: Key; secret: string }> {
    const { scopes = [], label, expiresInSeconds, ...call } = options;
    const request = create(wire.CreateKeyRequestSchema, { scopes: scopes.map(scopeToWire) });
    fill(wire.CreateKeyRequestSchema, request, { tenant, label, expiresInSeconds });
    const { key, secret } = await this.#once(method.createKey, request, call);
    return { key: plain(wire.KeySchema, key), secret };
  }

  /** The keys of a tenant, or of all. */
  async listKeys({ tenant, ...call }: CallOptions & { readonly tenant?: string | undefined } = {}): Promise<Key[]> {
    const request = fill(wire.ListKeysRequestSchema, create(wire.ListKeysRequestSchema), { tenant });
    const { keys } = await this.#calls.repeated(method.listKeys, request, call);
    return keys.map((key) => plain(wire.KeySchema, key));
  }

  /** Takes effect on every router within a second; sessions of the tenant stay. */
  async revokeKey(keyId: string, options: CallOptions = {}): Promise<Key> {
    const { key } = await this.#once(method.revokeKey, create(wire.RevokeKeyRequestSchema, { keyId }), options);
    return plain(wire.KeySchema, key);
  }

  /** Makes a token with which workers join. Its `secret` is in this answer and nowhere else. */
  async createToken(options: CreateTokenOptions = {}): Promise<{ token: Token; secret: string }> {
    const { timeoutSeconds, signal, ...fields } = options;
    const request = fill(wire.CreateTokenRequestSchema, create(wire.CreateTokenRequestSchema), fields);
    const { token, secret } = await this.#once(method.createToken, request, { timeoutSeconds, signal });
    return { token: plain(wire.TokenSchema, token), secret };
  }

  /** The tokens that there are. */
  async listTokens(options: CallOptions = {}): Promise<Token[]> {
    const { tokens } = await this.#calls.repeated(method.listTokens, create(wire.ListTokensRequestSchema), options);
    return tokens.map((token) => plain(wire.TokenSchema, token));
  }

  /** Workers that joined with it are refused from their next heartbeat on, and lost when their lease lapses. */
  async revokeToken(tokenId: string, options: CallOptions = {}): Promise<Token> {
    const { token } = await this.#once(method.revokeToken, create(wire.RevokeTokenRequestSchema, { tokenId }), options);
    return plain(wire.TokenSchema, token);
  }

  /** Sets what a tenant may use, in place of the router's defaults; null: it has these again. */
  async setQuota(tenant: string, quota: Partial<Quota> | null, options: CallOptions = {}): Promise<Tenant> {
    const request = fill(wire.SetQuotaRequestSchema, create(wire.SetQuotaRequestSchema), { tenant });
    if (quota !== null) {
      request.quota = fill(wire.QuotaSchema, create(wire.QuotaSchema), quota);
    }
    const response = await this.#calls.repeated(method.setQuota, request, options);
    return plain(wire.TenantSchema, response.tenant);
  }

  /** Tenants that have keys, quotas of their own, or sessions. */
  async listTenants(options: CallOptions = {}): Promise<Tenant[]> {
    const { tenants } = await this.#calls.repeated(method.listTenants, create(wire.ListTenantsRequestSchema), options);
    return tenants.map((tenant) => plain(wire.TenantSchema, tenant));
  }

  /** The sessions of all tenants, in no order, fetched page by page as they are taken. */
  async *listSessions(options: AdminListOptions = {}): AsyncGenerator<AdminSession, void> {
    const { tenant, pool, ...call } = options;
    const request = create(wire.ListSessionsRequestSchema);
    fill(wire.ListSessionsRequestSchema, request, { tenant, pool });
    const seen = new Set<string>();
    do {
      const page = await this.#calls.repeated(method.listSessions, request, call);
      for (const session of page.sessions.filter(({ sessionId }) => !seen.has(sessionId))) {
        seen.add(session.sessionId);
        yield plain(wire.SessionSchema, session);
      }
      request.pageToken = page.nextPageToken;
    } while (request.pageToken !== "");
  }

  /** Closes a session of any tenant, and says its final history length. */
  async closeSession(sessionId: string, options: CallOptions = {}): Promise<number> {
    const request = create(wire.CloseSessionRequestSchema, { sessionId });
    return number64((await this.#once(method.closeSession, request, options)).finalHistoryLength);
  }

  /** The workers of all pools and the byte ledger. */
  async listWorkers(options: CallOptions = {}): Promise<WorkerStatus[]> {
    const { workers } = await this.#calls.repeated(method.listWorkers, create(wire.ListWorkersRequestSchema), options);
    return workers.map((worker) => plain(wire.WorkerStatusSchema, worker));
  }

  /**
   * Empties a worker, or lets it have sessions again: none is placed on it, idle ones are parked, busy ones once they are
   * idle. The worker goes on running; `listWorkers` says when it is empty.
   */
  async drainWorker(workerId: string, options: DrainOptions = {}): Promise<WorkerStatus> {
    const { pool, undo, ...call } = options;
    const request = create(wire.DrainWorkerRequestSchema);
    fill(wire.DrainWorkerRequestSchema, request, { workerId, pool, undo });
    return plain(wire.WorkerStatusSchema, (await this.#calls.repeated(method.drainWorker, request, call)).worker);
  }

  /** A call that is not safe to repeat. */
  #once<I extends DescMessage, O extends DescMessage>(
    called: UnaryMethod<I, O>,
    request: MessageShape<I>,
    options: CallOptions,
  ): Promise<MessageShape<O>> {
    return this.#calls.unary(called, request, this.#calls.deadline(options));
  }
}

function scopeToWire(scope: Scope): wire.Scope {
  return scope === "admin" ? wire.Scope.ADMIN : wire.Scope.SESSIONS;
}
