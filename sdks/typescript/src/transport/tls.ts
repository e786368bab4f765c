/** TLS by files in PEM, as the services' flags name them. */

import { X509Certificate } from "node:crypto";
import { readFileSync } from "node:fs";
import { createSecureContext } from "node:tls";

import { credentials, type ChannelCredentials } from "@grpc/grpc-js";

/** Files of a TLS connection. */
export interface TlsFiles {
  /** Certificate authorities that the runtime's certificate must come from; left out: the platform's own. */
  readonly ca?: string | undefined;
  /** Certificate chain to present where the runtime asks for one (mTLS). */
  readonly cert?: string | undefined;
  /** Private key of `cert`, not encrypted. */
  readonly key?: string | undefined;
}

/**
 * Credentials of a TLS connection, for `credentials` of a client. The files are read once, now.
 *
 * @throws RangeError `cert` without `key` or the other way round, or what a file holds is of no use; names the file.
 * What reading a file throws.
 */
export function tlsCredentials({ ca, cert, key }: TlsFiles = {}): ChannelCredentials {
  if ((cert === undefined) !== (key === undefined)) {
    throw new RangeError("cert and key go together");
  }
  const [roots, chain, secret] = [ca, cert, key].map((file) => (file === undefined ? null : readFileSync(file)));
  // gRPC takes any bytes, and says nothing before the first handshake fails; OpenSSL says at once what is wrong.
  if (roots) {
    checked(`${ca}: holds no certificates in PEM`, () => new X509Certificate(roots));
  }
  if (chain && secret) {
    const message = `${cert} and ${key}: no certificate chain and its private key in PEM`;
    checked(message, () => createSecureContext({ cert: chain, key: secret }));
  }
  return credentials.createSsl(roots, secret, chain);
}

function checked(message: string, check: () => unknown): void {
  try {
    check();
  } catch (error) {
    throw new RangeError(message, { cause: error });
  }
}
