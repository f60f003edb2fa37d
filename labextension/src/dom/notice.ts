/** What became of a request, beside the button that asked for it. */
import type { ITrans } from '../model/trans.js';
import { h, setHidden, setText } from './dom.js';
import { icon } from './icons.js';

/** Asks the kernel for a verb, or for a remedy by its id; rejects with a reason for people. */
export type OnCommand = (command: string) => Promise<void>;

/** What a button needs that asks for something. */
export interface IRequestContext {
  trans: ITrans;
  onCommand: OnCommand;
  /** Shown when a request takes long: what could be in its way. */
  slowHint: string;
  /** Shows what a trial's rank printed; `null`: all its ranks. */
  showLogs?: (trialId: number, rank: number | null) => void;
}

const SLOW_AFTER_MS = 3000;

export class Notice {
  readonly node = h('div.det-notice', { role: 'alert', hidden: true });

  constructor(private readonly _requests: IRequestContext) {
    const label = _requests.trans.__('Dismiss');
    const dismiss = h(
      'button.det-button.det-mod-bare',
      { type: 'button', 'aria-label': label, title: label },
      icon('close')
    );
    dismiss.addEventListener('click', () => this.say(''));
    this.node.append(this._text, dismiss);
  }

  /** Ask for something; say so when it takes long, and why it was refused. */
  async ask(command: string): Promise<void> {
    this.say('');
    const slow = setTimeout(() => this.say(this._requests.slowHint), SLOW_AFTER_MS);
    try {
      await this._requests.onCommand(command);
      this.say('');
    } catch (error) {
      this.say(error instanceof Error ? error.message : String(error));
    } finally {
      clearTimeout(slow);
    }
  }

  /** Show a text until it is dismissed or replaced; an empty one hides the notice. */
  say(text: string, isGood = false): void {
    setText(this._text, text);
    setHidden(this.node, !text);
    this.node.classList.toggle('det-mod-good', isGood);
  }

  private readonly _text = h('span');
}
