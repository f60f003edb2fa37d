/** The result of a request, shown beside its button. */
import type { ITrans } from '../model/trans.js';
import { h, setHidden, setText } from './dom.js';
import { icon } from './icons.js';

/** Sends a verb or the id of a remedy; rejects with a message for the user. */
export type OnCommand = (command: string) => Promise<void>;

/** Something to look at a rank with. */
export interface IRankTool {
  label: string;
  caption: string;
  /** Whether the rank has to be there still. */
  isLive: boolean;
  run: (trialId: number, rank: number) => void;
}

/** What buttons need to send requests. */
export interface IRequestContext {
  trans: ITrans;
  onCommand: OnCommand;
  /** Shown when a request takes long. */
  slowHint: string;
  /** Shows the logs of a trial's rank; `null`: of all ranks. */
  showLogs?: (trialId: number, rank: number | null) => void;
  /** What a click on a rank offers. */
  rankTools?: readonly IRankTool[];
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

  /** Send a request; show a notice if it takes long or is refused. */
  async ask(command: string): Promise<void> {
    const { slowHint, onCommand } = this._requests;
    this.say('');
    // Another request may be on its way: what it has been answered stays.
    const slow = setTimeout(() => this.node.hidden && this.say(slowHint), SLOW_AFTER_MS);
    try {
      await onCommand(command);
      if (this._text.textContent === slowHint) {
        this.say('');
      }
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
