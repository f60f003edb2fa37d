/** Controls to change a running trial, and to record a profile of its next steps. */
import { h, rebuilder, setHidden, smallButton } from '../dom/dom.js';
import { Notice, type IRequestContext } from '../dom/notice.js';
import { formatSize } from '../model/format.js';
import type { Ask } from '../model/questions.js';
import type { IChangeLine, ITraceLine } from '../model/state.js';
import type { IChangeAnswer, IProfileAnswer } from '../model/answers.js';

const STEPS = 10;

/** The fields of a change. */
const FIELDS = ['lr', 'min_validation_period', 'priority'] as const;

export interface IOrdered {
  trialId: number;
  isRunning: boolean;
  changes: IChangeLine[];
  traces: ITraceLine[];
}

export class OrderControls {
  readonly node: HTMLElement;

  constructor(
    private readonly _requests: IRequestContext,
    private readonly _ask: Ask
  ) {
    const { trans } = _requests;
    this._notice = new Notice({
      ..._requests,
      onCommand: () => this._carryOut(),
      slowHint: trans.__('It takes effect with the next batches …')
    });
    const profile = smallButton(
      trans.__('Profile %1 steps', STEPS),
      () => void this._order('profile', { steps: STEPS, ranks: [0] })
    );
    this._form = this._makeForm();
    const change = h('details.det-change', {}, h('summary', {}, trans.__('Change it')));
    change.append(this._form);
    this._live = h('div.det-line', {}, profile, change);
    this.node = h('div.det-orders', {}, this._live, this._notice.node, this._done);
  }

  /** Enable what is possible for the trial, and list changes and profiles. */
  update(ordered: IOrdered): void {
    this._ordered = ordered;
    setHidden(this._live, !ordered.isRunning);
    this._drawDone(ordered);
  }

  private async _order(type: 'profile' | 'change', fields: object): Promise<void> {
    const { trans } = this._requests;
    const { trialId } = this._ordered ?? {};
    let text = '';
    this._carryOut = async () => {
      text = (
        await this._ask<IChangeAnswer | IProfileAnswer>(type, { trial_id: trialId, ...fields })
      ).text;
    };
    this._setBusy(true);
    await this._notice.ask(type);
    this._setBusy(false);
    if (text !== '') {
      if (type === 'change') {
        this._form.reset();
      }
      this._notice.say(type === 'profile' ? text : trans.__('Changed: %1', text), true);
    }
  }

  private _makeForm(): HTMLFormElement {
    const { trans } = this._requests;
    const labels = {
      lr: trans.__('learning rate'),
      min_validation_period: trans.__('validate every … batches'),
      priority: trans.__('priority')
    };
    const inputs = FIELDS.map(name =>
      h('input.det-field', { type: 'number', name, min: 0, step: name === 'lr' ? 'any' : 1 })
    );
    const apply = h('button.det-button.det-mod-small', { type: 'submit' }, trans.__('Apply'));
    const rows = FIELDS.map((name, i) =>
      h('label.det-change-field', {}, labels[name], inputs[i] as Node)
    );
    const form = h('form.det-line', {}, ...rows, apply);
    form.addEventListener('keydown', event => event.stopPropagation()); // keeps keys from the notebook
    form.addEventListener('submit', event => {
      event.preventDefault();
      const given = inputs.filter(input => input.value !== '');
      const changes = Object.fromEntries(given.map(input => [input.name, Number(input.value)]));
      if (given.length === 0) {
        this._notice.say(trans.__('Change at least one field.'));
      } else {
        void this._order('change', { changes });
      }
    });
    return form;
  }

  private _setBusy(isBusy: boolean): void {
    this._live.querySelectorAll('button').forEach(button => {
      button.disabled = isBusy;
    });
  }

  private _doneItems({ changes, traces }: IOrdered): HTMLElement[] {
    const { trans } = this._requests;
    const changed = changes.map(({ text, error, steps_completed: steps }) => {
      const when =
        steps === null ? trans.__('when it trains') : trans.__('from batch %1 on', steps);
      return error === '' ? `${text}, ${when}` : `${text}: ${trans.__('refused: %1', error)}`;
    });
    const recorded = traces.map(({ rank, path, size_bytes, text }) => {
      const what = trans.__('trace of rank %1: %2', rank, text);
      return path === '' ? what : `${what}, ${formatSize(size_bytes)}: ${path}`;
    });
    return [...changed, ...recorded].map(text => h('li.det-quiet', {}, text));
  }

  private readonly _form: HTMLFormElement;
  private readonly _live: HTMLElement;
  private _carryOut: () => Promise<void> = () => Promise.resolve();
  private readonly _notice: Notice;
  private readonly _done = h('ul.det-orders-done');
  private readonly _drawDone = rebuilder(this._done, (ordered: IOrdered) =>
    this._doneItems(ordered)
  );
  private _ordered: IOrdered | undefined;
}
