import { OptionDefaults } from "typedoc";

/** @type {Partial<import("typedoc").TypeDocOptions>} */
export default {
  name: "@kakeya/sdk",
  entryPoints: ["src/index.ts", "src/text/index.ts"],
  out: "build/docs",
  blockTags: [...OptionDefaults.blockTags, "@generated"], // of the messages, which types are made from
  excludeExternals: true,
  excludeInternal: true,
  excludePrivate: true,
  disableSources: true,
  // Of these the docs of the types that are made from them say what there is.
  intentionallyNotExported: [
    "src/errors.ts:Reason",
    "src/results/plain.ts:Plain",
    ...["FleetSums", "Key", "LastTurn", "Quota", "Session", "Tenant", "Token", "WorkerStatus"].map(
      (name) => `src/_generated/kakeya/admin/v1/admin_pb.ts:${name}`,
    ),
  ],
  treatWarningsAsErrors: true,
};
