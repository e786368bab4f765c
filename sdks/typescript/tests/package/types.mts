// Compiled where the package is installed, as a module of both kinds: what is not to compile says so.

import type { AppendResult, GenerateResult, Key, Session, SessionInfo, StopReason, Client } from "@kakeya/sdk";

type Equal<A, B> = (<T>() => T extends A ? 1 : 2) extends <T>() => T extends B ? 1 : 2 ? true : false;
const holds = <_T extends true>(): void => undefined;

holds<Equal<GenerateResult["seed"], bigint>>();
holds<Equal<SessionInfo["kvLiveBytes"], number>>();
holds<Equal<AppendResult["numForgottenTokens"], number | null>>();
holds<Equal<Key["scopes"], readonly string[]>>();
holds<Equal<Key["createdAt"], number>>();
holds<Equal<StopReason extends string ? true : false, true>>();
holds<Equal<Awaited<ReturnType<Client["createSession"]>>, Session>>();

export async function calls(client: Client): Promise<void> {
  const session = await client.createSession({ onOverflow: "refuse", pin: undefined });
  await session.append(new Uint32Array(3), { logprobs: 1, signal: AbortSignal.timeout(1) });
  for await (const token of session.generate({ maxTokens: 1, seed: 5n, logitBias: { 7: 1 } })) {
    holds<Equal<typeof token, number>>();
  }
  // @ts-expect-error maxTokens is to be said
  session.generate({ temperature: 1 });
  // @ts-expect-error there is no such policy
  await client.createSession({ onOverflow: "forget" });
  // @ts-expect-error names are those of the SDK, not of the contract
  session.generate({ maxTokens: 1, top_p: 0.5 });
  // @ts-expect-error results are not changed
  (await session.info()).historyLength = 5;
}
