import { writeFileSync } from "node:fs";
import { mkdtemp } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";

import { afterAll, beforeAll, expect, test, vi } from "vitest";

import {
  Client,
  ConnectionFailed,
  CredentialNotFound,
  InvalidField,
  PermissionDenied,
  QuotaExceeded,
  SessionNotFound,
  tlsCredentials,
  Unauthenticated,
} from "../../src/index.js";
import { eventually, securedStack, thrown, type Stack } from "../support/stack.js";

// What gRPC does for an address that is no name, these two refuse.
const { bun, deno } = process.versions as Readonly<Record<string, string | undefined>>;
let stack: Stack;
let address: string;
let operator: Client;

beforeAll(async () => {
  stack = await securedStack();
  address = stack.address.replace("127.0.0.1", "localhost");
  operator = new Client(address, {
    credentials: tlsCredentials(stack.where.files),
    apiKey: stack.where.admin_key,
  });
});
afterAll(() => operator.close());

test("a conversation over mTLS with a key from a file, or as the variables say", async () => {
  const { secret, key } = await operator.admin.createKey("acme", { label: "mine", expiresInSeconds: 600 });
  expect(key).toMatchObject({ tenant: "acme", label: "mine", scopes: ["sessions"] });
  const file = join(await mkdtemp(join(tmpdir(), "kakeya-")), "key");
  writeFileSync(file, `${secret}\n`);
  await using client = new Client(address, {
    credentials: tlsCredentials(stack.where.files),
    apiKeyFile: file,
  });
  await using session = await client.createSession({ label: "secured" });
  expect(await session.turn([1, 2, 3], { maxTokens: 3 }).all()).toHaveLength(3);
  vi.stubEnv("KAKEYA_ADDRESS", address);
  vi.stubEnv("KAKEYA_API_KEY", secret);
  vi.stubEnv("KAKEYA_TLS_CA", stack.where.files.ca);
  vi.stubEnv("KAKEYA_TLS_CERT", stack.where.files.cert);
  vi.stubEnv("KAKEYA_TLS_KEY", stack.where.files.key);
  try {
    await using other = Client.fromEnvironment();
    expect((await other.session(session.id).info()).historyLength).toBe(6);
  } finally {
    vi.unstubAllEnvs();
  }
  // Those of another tenant do not exist for it, nor do these for others.
  const { secret: foreign } = await operator.admin.createKey("other");
  await thrown(SessionNotFound, () => client.withApiKey(foreign).session(session.id).info());
});

test.skipIf(bun ?? deno)("over TLS to an address that is no name", async () => {
  const credentials = tlsCredentials(stack.where.files);
  await using client = new Client(stack.address, { credentials, apiKey: stack.where.admin_key });
  expect(stack.address).toMatch(/^127\.0\.0\.1:/);
  expect(await client.listModels()).toHaveLength(1);
});

test("without a good key, or a certificate, nobody gets in", async () => {
  await using client = new Client(address, { credentials: tlsCredentials(stack.where.files) });
  await thrown(Unauthenticated, () => client.listModels());
  await thrown(Unauthenticated, () => client.withApiKey("kakeya_key_000000000000_none").listModels());
  const { secret } = await operator.admin.createKey("acme");
  await thrown(PermissionDenied, () => client.withApiKey(secret).admin.listKeys());
  await using stranger = new Client(address, {
    credentials: tlsCredentials({ ca: stack.where.files.ca }),
    maxAttempts: 1,
  });
  await thrown(ConnectionFailed, () => stranger.listModels());
  await using plaintext = new Client(address, { maxAttempts: 1 });
  await thrown(ConnectionFailed, () => plaintext.listModels());
});

test("operators see and change what there is", async () => {
  const { admin } = operator;
  const { key, secret } = await admin.createKey("quoted", { scopes: ["sessions", "admin"] });
  expect((await admin.listKeys({ tenant: "quoted" })).map(({ keyId }) => keyId)).toEqual([key.keyId]);
  expect(await admin.setQuota("quoted", { maxSessions: 1 })).toMatchObject({
    name: "quoted",
    hasOwnQuota: true,
    quota: { maxSessions: 1, maxReservedBytes: 0, tokensPerMinute: 0 },
  });
  const tenant = operator.withApiKey(secret);
  const session = await tenant.createSession();
  const error = await thrown(QuotaExceeded, () => tenant.createSession());
  expect(error.metadata).toMatchObject({ quota: "sessions", limit: "1" });
  const listed = [];
  for await (const each of admin.listSessions({ tenant: "quoted" })) {
    listed.push(each);
  }
  expect(listed).toMatchObject([{ sessionId: session.id, tenant: "quoted", state: "open", lastTurn: null }]);
  expect(await admin.closeSession(session.id)).toBe(0);
  expect((await admin.listTenants()).map(({ name }) => name)).toContain("quoted");
  expect((await admin.setQuota("quoted", null)).hasOwnQuota).toBe(false);
  expect((await admin.revokeKey(key.keyId)).keyId).toBe(key.keyId);
  await thrown(CredentialNotFound, () => admin.revokeKey("none"));
  await eventually(
    () =>
      tenant.listModels().then(
        () => false,
        (failure: unknown) => failure instanceof Unauthenticated,
      ),
    "its key is revoked",
  );
  const { token, secret: joining } = await admin.createToken({ pool: "demo", label: "mine" });
  expect([token.pool, joining.startsWith("kakeya_join_")]).toEqual(["demo", true]);
  expect((await admin.listTokens()).map(({ tokenId }) => tokenId)).toContain(token.tokenId);
  expect((await admin.revokeToken(token.tokenId)).tokenId).toBe(token.tokenId);
  await thrown(InvalidField, () => admin.createKey("Not A Tenant"));
});

test("a worker is drained, and takes sessions again", async () => {
  const { admin } = operator;
  const [worker] = await admin.listWorkers();
  expect(worker).toMatchObject({ sink: 4, window: 64, exact: true, draining: false });
  const id = worker?.workerId ?? "";
  expect((await admin.drainWorker(id)).draining).toBe(true);
  expect((await admin.drainWorker(id, { undo: true, pool: worker?.pool })).draining).toBe(false);
});
