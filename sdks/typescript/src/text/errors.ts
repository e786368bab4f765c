/** What goes wrong between text and tokens. */

/** There is no such tokenizer, or it cannot do what is asked; the message says what to do. */
export class TokenizerError extends Error {
  constructor(message: string, cause?: unknown) {
    super(message, cause === undefined ? undefined : { cause });
    this.name = new.target.name;
  }
}

/** The fault is with what should be said, not with the tokenizer: another prompt may be taken. */
export class PromptRefused extends TokenizerError {}

/** The chat template did not come to its end within its bounds of time and size. */
export class TemplateStopped extends TokenizerError {
  /**
   * @param template - whose.
   * @param reason - which bound it went beyond.
   */
  constructor(
    template: string,
    readonly reason: string,
  ) {
    super(`the chat template of ${template} was stopped: ${reason}`);
  }
}
