/** The button that adds DetCallback to the function of an experiment, in its cell. */
import { copyText } from '../dom/copy.js';
import { h, setText } from '../dom/dom.js';
import type { ICellAnswer } from '../model/answers.js';
import type { Ask } from '../model/questions.js';
import type { ITrans } from '../model/trans.js';

/** Replaces the source of a cell of the open notebook; returns whether it has such a cell. */
export type ReplaceCell = (before: string, after: string) => boolean;

export class CallbackButton {
  readonly node = h('div', { hidden: true });

  /** @param _replaceCell - Absent, or false: no open notebook has the cell, so the changed one is copied. */
  constructor(
    private readonly _trans: ITrans,
    private readonly _ask: Ask,
    private readonly _replaceCell?: ReplaceCell
  ) {
    const button = h('button.det-button', { type: 'button' }, _trans.__('Add DetCallback'));
    button.addEventListener('click', () => void this._add());
    this.node.append(button, ' ', this._said, this._code);
  }

  private async _add(): Promise<void> {
    const trans = this._trans;
    try {
      const { before, after } = await this._ask<ICellAnswer>('callback', {});
      if (this._replaceCell?.(before, after) === true) {
        setText(this._said, trans.__('Added to its cell: run the cell, and submit again.'));
        return;
      }
      setText(this._code, after);
      this._code.hidden = false;
      const copied = trans.__('Copied: paste it over the cell that defines the function.');
      setText(this._said, await copyText(after, this._code, trans, copied));
    } catch (error) {
      setText(this._said, error instanceof Error ? error.message : String(error));
    }
  }

  private readonly _said = h('span.det-quiet', { role: 'status' });
  private readonly _code = h('pre', { hidden: true });
}
