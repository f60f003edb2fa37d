/** The base class of panels that show an answer, fetched when they are visible and a version has changed. */
import { h, setText } from '../dom/dom.js';
import type { Ask } from '../model/questions.js';
import type { IPanel } from './tab.js';

const SLOW_MS = 3000;

export interface IAnswerPanelOptions {
  ask: Ask;
  /** The type of the question. */
  type: string;
  /** Shown when the answer takes long. */
  slowHint: string;
}

export abstract class AnswerPanel<Answer> implements IPanel {
  protected constructor(private readonly _options: IAnswerPanelOptions) {}

  setShown(isShown: boolean): void {
    this._isShown = isShown;
    this._askIfNew();
  }

  dispose(): void {
    this._isShown = false;
    this._round += 1;
  }

  protected abstract _draw(answer: Answer): void;

  /** Fetch again if this version differs from the fetched one. */
  protected _note(version: string): void {
    this._version = version;
    this._askIfNew();
  }

  /** Fetch again now. */
  protected _askAgain(): void {
    this._asked = undefined;
    this._askIfNew();
  }

  private _askIfNew(): void {
    if (this._isShown && this._version !== undefined && this._version !== this._asked) {
      this._asked = this._version;
      void this._ask();
    }
  }

  private async _ask(): Promise<void> {
    const { ask, type, slowHint } = this._options;
    const round = (this._round += 1);
    const say = (text: string): void => {
      if (round === this._round) {
        setText(this._said, text);
      }
    };
    const slow = setTimeout(() => say(slowHint), SLOW_MS);
    try {
      const answer = await ask<Answer>(type, {});
      say('');
      if (round === this._round) {
        this._draw(answer);
      }
    } catch (error) {
      say(error instanceof Error ? error.message : String(error));
      this._asked = undefined; // fetched again at the next state
    } finally {
      clearTimeout(slow);
    }
  }

  protected readonly _said = h('p.det-quiet', { role: 'status' });
  private _version: string | undefined;
  private _asked: string | undefined;
  private _round = 0;
  private _isShown = false;
}
