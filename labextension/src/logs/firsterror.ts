/** The first error in the logs, pinned above the lines with a button to show it. */
import { h, setHidden, setText, smallButton } from '../dom/dom.js';
import { icon } from '../dom/icons.js';
import { formatClock } from '../model/format.js';
import type { ITrans } from '../model/trans.js';
import type { AskLogs } from './lines.js';
import type { ILogLine } from '../model/answers.js';

export interface IFirstErrorOptions {
  trans: ITrans;
  ask: AskLogs;
}

const ERRORS = ['error', 'critical'];
/** Lines that are fetched from the error on; tracebacks are usually shorter. */
const NUM_LINES = 100;

export class FirstError {
  readonly node: HTMLElement;

  constructor(
    private readonly _options: IFirstErrorOptions,
    onJump: (line: ILogLine) => void
  ) {
    const { trans } = _options;
    const jump = smallButton(trans.__('Show'), () => {
      if (this._line !== undefined) {
        onJump(this._line);
      }
    });
    this.node = h('div.det-first-error', { hidden: true }, icon('error'), this._text, jump);
    setText(this._text, '');
  }

  /** Search all lines of a trial, or of all trials. */
  async find(trialId: number | null): Promise<void> {
    const round = (this._round += 1);
    this._show(undefined, []);
    const query = { trial_id: trialId, rank: null, agent: null, level: 'error', search: '' };
    try {
      const page = await this._options.ask({ ...query, after: 0, tail: null, first: NUM_LINES });
      if (round === this._round && this._line === undefined) {
        this.note(page.lines);
      }
    } catch {
      // Not shown: requests for lines show the same problem.
    }
  }

  /** Search newer lines, if no error was found. */
  note(lines: readonly ILogLine[]): void {
    const first = lines.find(line => ERRORS.includes(line.level ?? ''));
    if (this._line === undefined && first !== undefined) {
      this._show(first, lines);
    }
  }

  private _show(first: ILogLine | undefined, lines: readonly ILogLine[]): void {
    const { trans } = this._options;
    this._line = first;
    setHidden(this.node, first === undefined);
    if (first !== undefined) {
      const where = trans.__('trial %1 rank %2', first.trial_id, first.rank);
      const said = `${trans.__('First error')}, ${formatClock(first.at)}, ${where}: `;
      this._text.replaceChildren(h('b', {}, said), messageOf(first, lines));
    }
  }

  private readonly _text = h('span');
  private _line: ILogLine | undefined;
  private _round = 0;
}

/** The message of an error: the last line of its traceback. */
function messageOf(first: ILogLine, lines: readonly ILogLine[]): string {
  if (!first.text.startsWith('Traceback')) {
    return first.text;
  }
  const last = lines.find(
    ({ id, trial_id, run, rank, text }) =>
      id > first.id &&
      trial_id === first.trial_id &&
      run === first.run &&
      rank === first.rank &&
      /^\S/.test(text)
  );
  return last?.text ?? first.text;
}
