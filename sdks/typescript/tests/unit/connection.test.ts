import { writeFileSync } from "node:fs";
import { mkdtemp } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { inspect } from "node:util";

import { afterEach, expect, test, vi } from "vitest";

import { Client, ConnectionFailed, tlsCredentials } from "../../src/index.js";
import { ApiKey, chooseKey } from "../../src/transport/api-key.js";
import { hostOf, isHere, proxyVariable } from "../../src/transport/proxy.js";
import { Refusal, Scripted } from "../support/scripted.js";
import { thrown } from "../support/stack.js";

afterEach(() => {
  vi.unstubAllEnvs();
});

const folder = mkdtemp(join(tmpdir(), "kakeya-"));

test("a key goes with each call, and is shown nowhere", async () => {
  await using runtime = await Scripted.start({ listModels: () => ({}) });
  vi.stubEnv("KAKEYA_API_KEY", "of-the-variable");
  await using client = new Client(runtime.address);
  await client.listModels();
  await client.withApiKey("another").listModels();
  await client.withApiKey("").listModels();
  await new Client(runtime.address, { apiKey: "" }).listModels();
  const sent = runtime.came.map(({ headers }) => headers.get("authorization")[0]);
  expect(sent).toEqual(["Bearer of-the-variable", "Bearer another", undefined, undefined]);
  expect(inspect(client, { depth: 9, showHidden: true })).not.toContain("of-the-variable");
});

test("a key that cannot be one is refused without being shown", async () => {
  expect(() => new Client("localhost:1", { apiKey: "a secret" })).toThrow(RangeError);
  expect(() => chooseKey(undefined, undefined, { KAKEYA_API_KEY: "a\nsecret" })).toThrow(
    /^\$KAKEYA_API_KEY: (?!.*secret)/,
  );
  const file = join(await folder, "empty");
  writeFileSync(file, "\n");
  expect(() => chooseKey(undefined, file)).toThrow(file);
  expect(chooseKey(undefined, undefined, {})).toBeUndefined();
  expect(new ApiKey("k").authorization).toBe("Bearer k");
});

test("files of TLS that are of no use are named", async () => {
  const file = join(await folder, "no.pem");
  writeFileSync(file, "none");
  expect(() => tlsCredentials({ ca: file })).toThrow(`${file}: holds no certificates`);
  expect(() => tlsCredentials({ cert: file, key: file })).toThrow(`${file} and ${file}: no certificate chain`);
  expect(() => tlsCredentials({ cert: file })).toThrow("go together");
  expect(() => tlsCredentials({ ca: `${file}.gone` })).toThrow("ENOENT");
  expect(tlsCredentials()).toBeDefined();
});

test("where a client goes by the variables", async () => {
  await using runtime = await Scripted.start({ listModels: () => ({ models: [] }) });
  vi.stubEnv("KAKEYA_ADDRESS", runtime.address);
  await using client = Client.fromEnvironment({ timeoutSeconds: 30 });
  expect(await client.listModels()).toEqual([]);
});

test("addresses of this machine", () => {
  const here = ["localhost:1", "127.0.0.9:1", "[::1]:1", "unix:/a", "dns:///localhost:5", "localhost"];
  expect(here.map(isHere)).toEqual(here.map(() => true));
  expect(["10.0.0.1:5", "example.com:5", "[fe80::1]:5"].map(isHere)).toEqual([false, false, false]);
  expect(hostOf("ipv6:[::2]:50051")).toBe("::2");
});

test("a failure says through which proxy it went", async () => {
  const through = (address: string, environment: Record<string, string>): string => proxyVariable(address, environment);
  const proxy = { https_proxy: "http://p:1", http_proxy: "http://q:1" };
  expect(through("example.com:1", proxy)).toBe("https_proxy");
  expect(through("example.com:1", {})).toBe("");
  expect(through("127.0.0.1:1", proxy)).toBe("");
  expect(through("example.com:1", { ...proxy, no_proxy: "other, .com" })).toBe("");
  expect(through("10.1.2.3:1", { ...proxy, no_grpc_proxy: "10.0.0.0/8" })).toBe("");
  expect(through("[fd00::1]:1", { ...proxy, no_proxy: "fd00::/8,10.0.0.0/8" })).toBe("");
  expect(through("11.1.2.3:1", { ...proxy, no_proxy: "10.0.0.0/8,11.1.2.0" })).toBe("https_proxy");
  vi.stubEnv("grpc_proxy", "http://127.0.0.1:1");
  await using client = new Client("example.invalid:1", { maxAttempts: 1 });
  const error = await thrown(ConnectionFailed, () => client.listModels());
  expect(error.message).toContain("(through the proxy of $grpc_proxy)");
});

test("of several addresses the next is taken where one is away or shuts down", async () => {
  await using draining = await Scripted.start({
    listModels: () => {
      throw new Refusal("UNAVAILABLE", "DRAINING");
    },
  });
  await using runtime = await Scripted.start({ listModels: () => ({ models: [] }) });
  await using client = new Client(["127.0.0.1:1", draining.address, runtime.address]);
  await client.listModels();
  await client.listModels();
  expect([draining.came.length, runtime.came.length]).toEqual([1, 2]);
  await using same = new Client(`127.0.0.1:1, ${runtime.address}`);
  await same.listModels();
  await using grpcs = new Client(`ipv4:127.0.0.1:1,${runtime.address}`);
  await grpcs.listModels();
});
