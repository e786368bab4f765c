/** A chat template: messages into the text that its model was trained on. */

import { ContentForm, textPart } from "./content-form.js";
import type { Control } from "./control-tokens.js";
import { PromptRefused, TemplateStopped, TokenizerError } from "./errors.js";
import type { Jinja } from "./rendering/jinja.js";
import { OverBudget, Raised, Template } from "./rendering/template.js";
import { texts } from "./rendering/given.js";
import type { Rendered } from "./stand-ins.js";
import { withObjects, withShortIds } from "./tool-calls.js";

/** A message: `role`, `content`, and what else the chat template reads, as OpenAI's API has it. */
export interface Message {
  readonly role: string;
  /** A text, or a list of parts `{ type: "text", text }`. */
  readonly content?: unknown;
  readonly [name: string]: unknown;
}

/** What the model may call, each as OpenAI's API has it. */
export type Tools = readonly object[];

/** What a template is told beside messages. */
export interface Told {
  readonly promptsAnswer: boolean;
  readonly tools?: Tools | undefined;
  readonly variables?: Readonly<Record<string, unknown>> | undefined;
}

// They stand in rendered conversations where texts will be. Letters only, in any case: templates trim and capitalize.
const FIRST = "Kakeyafirst";
const SECOND = "Kakeyasecond";
const ANSWER = "Kakeyaanswer";
/** In a part, and none of its text: it comes out where the part is printed as it is. */
const BESIDE = "Kakeyabeside";
const NAMES_OF_REASONING = ["reasoning_content", "thinking", "reasoning"];
/** Nine letters and digits: some templates ask for that. */
const CALL_ID = "kakeya123";
/** As most servers make them. */
const LONG_ID = "call_kakeya123";
const HALF = /\p{Surrogate}/u;

type Conversation = (content: unknown) => Message[];

/**
 * A tokenizer's chat template.
 *
 * Some templates take a message's content as a text, some as a list of parts, some as either, and what comes in another
 * form they leave out without a word; one role may differ from another. So markers are rendered once, and from then on
 * each content is given in a form in which its role's marker came out. Likewise with the arguments of tool calls, and
 * with their ids: some templates refuse all but nine letters and digits.
 */
export class ChatTemplate {
  readonly #template: Template;
  readonly #forms = new Map<string, ContentForm>();
  readonly #user: ContentForm;
  readonly #decodesArguments: boolean;
  readonly #shortensIds: boolean;
  #goesOn: boolean | undefined;

  /**
   * @param source - in Jinja.
   * @param name - of the tokenizer, for errors.
   * @param variables - what the template is told beside the messages, as the names of the special tokens are.
   * @param control - the tokens that no text may become; undefined where texts may.
   *
   * @throws TokenizerError: what a user says comes out in no form; TemplateStopped where it comes to no end.
   */
  constructor(
    jinja: Jinja,
    readonly source: string,
    private readonly name: string,
    private readonly variables: object,
    private readonly control: Control | undefined,
  ) {
    this.#template = this.#reading(undefined, () => new Template(jinja, source));
    this.#user = this.#userForm();
    this.#forms.set("user", this.#user);
    const system = this.#formOf((content) => [{ role: "system", content }, this.#said("-")]);
    this.#forms.set("system", system).set("developer", system);
    this.#forms.set(
      "assistant",
      this.#formOf((content) => [this.#said("-"), { role: "assistant", content }, this.#said("-")]),
    );
    this.#decodesArguments = this.#takesObjects();
    this.#forms.set(
      "tool",
      this.#formOf((content) => this.#used(content, CALL_ID)),
    );
    this.#shortensIds = this.#refusesLongIds();
  }

  /**
   * The conversation as the template writes it.
   *
   * @throws PromptRefused: the template refuses these messages, on purpose, or a text holds half a character.
   * @throws TemplateStopped: it does not come to an end.
   * @throws TokenizerError: it fails on them.
   */
  render(messages: readonly Message[], { promptsAnswer, tools, variables }: Told): Rendered {
    if (messages.length === 0) {
      throw new PromptRefused("there are no messages");
    }
    const given = { ...variables, tools: tools ?? null, add_generation_prompt: promptsAnswer };
    return this.#written(
      messages.map((message) => this.#formed(message)),
      given,
      this.control,
    );
  }

  /**
   * What stands between the model's answer and its next one where the user says this.
   *
   * @throws PromptRefused: the template refuses the conversation, on purpose.
   * @throws TokenizerError: it fails on it, or leaves out what was said before.
   */
  between(text: string): Rendered {
    this.#goesOn ??= holdsInOrder(this.#behindAnswer(FIRST).meant, FIRST);
    if (!this.#goesOn) {
      throw this.#leavesOut();
    }
    return this.#behindAnswer(text);
  }

  #behindAnswer(text: string): Rendered {
    const said = [this.#user.of("-"), ANSWER, text].map((content, index) => {
      return { role: index === 1 ? "assistant" : "user", content };
    });
    const rendered = this.render(said, { promptsAnswer: true });
    const place = rendered.meant.toLowerCase().indexOf(ANSWER.toLowerCase());
    if (place < 0) {
      throw this.#leavesOut();
    }
    return rendered.slice(place + ANSWER.length);
  }

  #leavesOut(): TokenizerError {
    return new TokenizerError(
      `the chat template of ${this.name} leaves out what was said before: a conversation cannot go on by what is new in it`,
    );
  }

  #formed(message: Message): Message {
    let formed: Record<string, unknown> = this.#decodesArguments ? withObjects(message) : { ...message };
    if (this.#shortensIds) {
      formed = withShortIds(formed);
    }
    if ("content" in formed) {
      formed.content = this.#formFor(message.role).of(formed.content);
    }
    return formed as unknown as Message;
  }

  #written(messages: readonly Message[], given: object = {}, control?: Control): Rendered {
    const told = {
      tools: null,
      documents: null,
      add_generation_prompt: true,
      ...given,
      messages: messages.map(withReasoning),
    };
    if (texts(told).some((text) => HALF.test(text))) {
      throw new PromptRefused("a text holds half a character");
    }
    return this.#reading(messages, () => this.#template.render(this.variables, told, control, new Date()));
  }

  /** A template is another's program: whatever it throws is told in one line. */
  #reading<T>(messages: readonly Message[] | undefined, work: () => T): T {
    try {
      return work();
    } catch (error) {
      if (error instanceof TokenizerError) {
        throw error;
      }
      const reason = (error as Error).message.split(/\s+/).join(" ");
      if (error instanceof OverBudget) {
        throw new TemplateStopped(this.name, reason);
      }
      const roles = messages && ` on messages of ${[...new Set(messages.map(({ role }) => role))].join(", ")}`;
      if (error instanceof Raised) {
        throw new PromptRefused(
          `the chat template refuses messages${roles?.slice(" on messages".length) ?? ""}: ${reason}`,
          error,
        );
      }
      throw new TokenizerError(`the chat template of ${this.name} fails${roles ?? ""}: ${reason}`, error);
    }
  }

  #said(text: string): Message {
    return { role: "user", content: this.#user.of(text) };
  }

  #userForm(): ContentForm {
    const alone: Conversation = (content) => [{ role: "user", content }];
    const instructed: Conversation = (content) => [
      { role: "system", content: "-" },
      { role: "user", content },
    ];
    const form = [alone, instructed].map((each) => this.#form(each)).find(({ any }) => any);
    if (form) {
      return form;
    }
    const reasons = new Set([FIRST, [textPart(FIRST)]].map((content) => this.#fault(alone(content))));
    throw new TokenizerError(
      `the chat template of ${this.name} writes a user's message neither given as a text nor as parts ` +
        `(${[...reasons].join("; ")}): it belongs to another library, or is broken`,
    );
  }

  #fault(messages: Message[]): string {
    try {
      this.#written(messages);
    } catch (error) {
      return (error as Error).message;
    }
    return "it is left out";
  }

  #called(called: unknown, id: string): Message[] {
    const call = { id, type: "function", function: { name: "look", arguments: called } };
    return [this.#said("-"), { role: "assistant", content: this.#formFor("assistant").of(""), tool_calls: [call] }];
  }

  /** Whether arguments are given as objects: also where neither comes out, as templates without tools do it. */
  #takesObjects(): boolean {
    const asObject = this.#called({ [FIRST]: SECOND }, CALL_ID);
    const asText = this.#called(`{"${FIRST}": "${SECOND}"}`, CALL_ID);
    return this.#shows(asObject, FIRST, SECOND) || !this.#shows(asText, FIRST, SECOND);
  }

  #used(content: unknown, id: string): Message[] {
    const result = { role: "tool", content, tool_call_id: id, name: "look" };
    return [...this.#called(this.#decodesArguments ? {} : "{}", id), result];
  }

  #refusesLongIds(): boolean {
    const content = this.#formFor("tool").of(FIRST);
    return this.#shows(this.#used(content, CALL_ID), FIRST) && !this.#shows(this.#used(content, LONG_ID), FIRST);
  }

  #formFor(role: string): ContentForm {
    return this.#forms.get(role) ?? this.#user;
  }

  /** As a user's where it comes out in none. */
  #formOf(conversation: Conversation): ContentForm {
    const form = this.#form(conversation);
    return form.any ? form : this.#user;
  }

  /** In which of its forms a content comes out of a conversation that holds it. */
  #form(conversation: Conversation): ContentForm {
    const part = { ...textPart(FIRST), beside: BESIDE };
    return new ContentForm(
      this.#shows(conversation(FIRST), FIRST),
      this.#shows(conversation([part]), FIRST),
      this.#shows(conversation([part, textPart(SECOND)]), FIRST, SECOND),
    );
  }

  #shows(messages: Message[], ...markers: string[]): boolean {
    try {
      const { marked } = this.#written(messages);
      return holdsInOrder(marked, ...markers) && !holdsInOrder(marked, BESIDE);
    } catch (error) {
      if (error instanceof TemplateStopped) {
        throw error;
      }
      return false; // it takes no such conversation
    }
  }
}

/** The message without what it has not, and what was thought by all names that templates know it by. */
function withReasoning(message: Message): Record<string, unknown> {
  const said = Object.fromEntries(Object.entries(message).filter(([, value]) => value !== null && value !== undefined));
  const name = NAMES_OF_REASONING.find((each) => each in said);
  return name === undefined ? said : { thinking: said[name], ...said, reasoning_content: said[name] };
}

function holdsInOrder(rendered: string, ...markers: string[]): boolean {
  return new RegExp(markers.join(".*"), "is").test(rendered);
}
