/** Each method that waits is aborted while it waits for an answer that does not come. */

import { afterAll, beforeAll, expect, test } from "vitest";

import { AbortError, Admin, Client, Conflict, Generation, Session } from "../../src/index.js";
import { Link } from "../support/link.js";
import { eventually, plainStack, thrown } from "../support/stack.js";

const TAG = new Uint8Array(32).fill(7);
const ENDLESS = { maxTokens: 65_536, ignoreEos: true };

/** Before gRPC takes a connection without answers for broken: that would end a call, too. */
const BROKEN_MS = 30_000;

/** What a method is called with; all that it opens has this label. */
interface Given {
  readonly client: Client;
  readonly session: Session;
  readonly label: string;
  readonly signal: AbortSignal;
}

const METHODS: Record<string, (given: Given) => Promise<unknown>> = {
  "Client.createSession": ({ client, label, signal }) => client.createSession({ label, signal }),
  "Client.findSession": ({ client, signal }) => client.findSession([TAG], { signal }),
  "Client.listModels": ({ client, signal }) => client.listModels({ signal }),
  "Client.listSessions": ({ client, signal }) => client.listSessions({ signal }).next(),
  "Client.turn": ({ client, label, signal }) => client.turn([1], { ...ENDLESS, label, signal }).all(),
  "Client.turnAt": ({ client, session, signal }) => client.turnAt(session.id, 3, [1], { ...ENDLESS, signal }).all(),
  "Client.turnFound": ({ client, label, signal }) =>
    client.turnFound([TAG], [1], { ...ENDLESS, expected: {}, opens: true, label, signal }).all(),
  "Client.watch": ({ client, signal }) => client.watch({ signal }).next(),
  "Session.append": ({ session, signal }) => session.append([4, 5], { signal }),
  "Session.close": ({ session, signal }) => session.close({ signal }),
  "Session.fork": ({ session, label, signal }) => session.fork({ label, signal }),
  "Session.generate": ({ session, signal }) => session.generate({ ...ENDLESS, signal }).all(),
  "Session.info": ({ session, signal }) => session.info({ signal }),
  "Session.park": ({ session, signal }) => session.park({ signal }),
  "Session.rewind": ({ session, signal }) => session.rewind(3, { signal }),
  "Session.tag": ({ session, signal }) => session.tag("head", 3, [TAG], { signal }),
  "Session.turn": ({ session, signal }) => session.turn([1], { ...ENDLESS, signal }).all(),
  "Generation.all": ({ session, signal }) => session.generate({ ...ENDLESS, signal }).all(),
  "Generation.begin": ({ session, signal }) => session.turn([1], { ...ENDLESS, signal }).begin(),
  "Generation.nextToken": ({ session, signal }) => session.generate({ ...ENDLESS, signal }).nextToken(),
  "Admin.closeSession": ({ client, signal }) => client.admin.closeSession("none", { signal }),
  "Admin.createKey": ({ client, signal }) => client.admin.createKey("tenant", { signal }),
  "Admin.createToken": ({ client, signal }) => client.admin.createToken({ signal }),
  "Admin.drainWorker": ({ client, signal }) => client.admin.drainWorker("none", { signal }),
  "Admin.listKeys": ({ client, signal }) => client.admin.listKeys({ signal }),
  "Admin.listSessions": ({ client, signal }) => client.admin.listSessions({ signal }).next(),
  "Admin.listTenants": ({ client, signal }) => client.admin.listTenants({ signal }),
  "Admin.listTokens": ({ client, signal }) => client.admin.listTokens({ signal }),
  "Admin.listWorkers": ({ client, signal }) => client.admin.listWorkers({ signal }),
  "Admin.revokeKey": ({ client, signal }) => client.admin.revokeKey("none", { signal }),
  "Admin.revokeToken": ({ client, signal }) => client.admin.revokeToken("none", { signal }),
  "Admin.setQuota": ({ client, signal }) => client.admin.setQuota("tenant", { maxSessions: 5 }, { signal }),
};
/** Those that wait for nothing, or for nothing that comes from the runtime. */
const OTHERS = [
  ...["Client.constructor", "Client.admin", "Client.withApiKey", "Client.session", "Client.close"],
  ...["Session.constructor", "Session.appendIn", "Session.historyLength", "Admin.constructor"],
  ...["Generation.constructor", "Generation.session", "Generation.found", "Generation.appended", "Generation.opId"],
  "Generation.cancel",
];

let address: string;
let direct: Client;

beforeAll(async () => {
  ({ address } = await plainStack());
  direct = new Client(address);
});
afterAll(() => direct.close());

/** No operation goes on in it. */
async function free(session: Session): Promise<void> {
  const isFree = (): Promise<boolean> =>
    session.append([]).then(
      () => true,
      (error: unknown) => {
        expect(error).toBeInstanceOf(Conflict);
        return false;
      },
    );
  await eventually(isFree, "no operation goes on");
}

/** Of all sessions that are open. */
async function openLabels(): Promise<string[]> {
  for await (const { sessions } of direct.watch()) {
    return sessions.map(({ label }) => label);
  }
  throw new Error("a watch begins with all that there is");
}

test("these are all that there are", () => {
  const names = [Client, Session, Generation, Admin].flatMap(({ name, prototype }) =>
    Object.getOwnPropertyNames(prototype).map((each) => `${name}.${each}`),
  );
  expect(names.sort()).toEqual([...Object.keys(METHODS), ...OTHERS].sort());
});

test.concurrent.each(Object.entries(METHODS))("%s", async (label, call) => {
  await using link = await Link.to(address);
  await using client = new Client(link.address);
  const mine = await direct.createSession();
  await mine.append([1, 2, 3]);
  await client.listModels();
  await client.turn([1], { maxTokens: 1 }).all(); // streams have a connection of their own
  const session = client.session(mine.id, 3);

  link.hold();
  const before = link.numSent;
  const controller = new AbortController();
  const waiting = thrown(AbortError, () => call({ client, session, label, signal: controller.signal }));
  await eventually(() => link.numSent > before, "it is asked for");
  const reason = new Error("enough");
  controller.abort(reason);
  const aborted = performance.now();
  expect(await waiting).toMatchObject({ status: "CANCELLED", cause: reason, tokenIds: [] });
  expect(performance.now() - aborted).toBeLessThan(BROKEN_MS); // no answer has come yet
  link.release();

  if (label !== "Session.close") {
    await free(mine);
    await mine.close();
  }
  await eventually(async () => !(await openLabels()).includes(label), "what it may have opened is closed");
});

test("in mid-stream, with the tokens so far", async () => {
  await using link = await Link.to(address);
  await using client = new Client(link.address);
  await using session = await direct.createSession();
  await session.append([1, 2, 3]);
  const controller = new AbortController();
  const generation = client.session(session.id).generate({ ...ENDLESS, signal: controller.signal });
  const seen = [await generation.nextToken(), await generation.nextToken()];
  link.hold();
  const held = performance.now();
  const error = await thrown(AbortError, async () => {
    setTimeout(() => {
      controller.abort();
    }, 200);
    for await (const tokenId of generation) {
      seen.push(tokenId);
    }
  });
  expect(performance.now() - held).toBeLessThan(BROKEN_MS);
  expect(error.tokenIds).toEqual(seen);
  expect(seen.length).toBeGreaterThanOrEqual(2);
  link.release();
  await free(session);
});
