/** In which form a chat template takes the content of a message. */

import { isObject } from "./files.js";

/** A part of a content, as templates know it. */
export function textPart(text: string): { type: "text"; text: string } {
  return { type: "text", text };
}

/** What comes out of a template again where it is a message's content. */
export class ContentForm {
  /**
   * @param text - one text does.
   * @param part - a list of one part, `{ type: "text", text }`.
   * @param parts - a list of several.
   */
  constructor(
    readonly text: boolean,
    readonly part: boolean,
    readonly parts: boolean,
  ) {}

  /** Whether anything comes out. */
  get any(): boolean {
    return this.text || this.part || this.parts;
  }

  /**
   * The content in a form that the template takes: as it is where that is one, or where it is not all text.
   *
   * Parts of which the template would show one only, or none, are joined without anything between them.
   */
  of(content: unknown): unknown {
    if (typeof content === "string") {
      return this.text ? content : [textPart(content)];
    }
    if (!areTexts(content) || (content.length > 0 && this.parts)) {
      return content;
    }
    const joined = content.map(({ text }) => text).join("");
    if (this.text) {
      return joined;
    }
    return content.length > 0 ? [textPart(joined)] : content;
  }
}

function areTexts(content: unknown): content is { text: string }[] {
  return (
    Array.isArray(content) &&
    content.every((part) => isObject(part) && part.type === "text" && typeof part.text === "string")
  );
}
