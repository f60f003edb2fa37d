/** The tab of checkpoints: a table, the best one, the code to load one; to register one as a model. */
import { copyButton } from '../dom/copy.js';
import { h, setText, smallButton } from '../dom/dom.js';
import { formatNumber, formatSize } from '../model/format.js';
import type { IViewState } from '../model/state.js';
import type { ITrans } from '../model/trans.js';
import type { Ask } from '../model/questions.js';
import { AnswerPanel } from './answerpanel.js';
import type { ITab, ITabContext } from './tab.js';
import type { ICheckpointView, ICheckpointsAnswer, IRegisteredAnswer } from '../model/answers.js';

export function checkpointsTab(context: ITabContext): ITab {
  return {
    id: 'checkpoints',
    label: context.requests.trans.__('Checkpoints'),
    open: host => new CheckpointsPanel(context, host)
  };
}

class CheckpointsPanel extends AnswerPanel<ICheckpointsAnswer> {
  constructor({ requests, ask }: ITabContext, host: HTMLElement) {
    super({ ask, type: 'checkpoints', slowHint: requests.slowHint });
    this._trans = requests.trans;
    this._send = ask;
    host.append(this._said, this._lines, this._form, this._box);
  }

  update({ checkpoints, status }: IViewState): void {
    this._metric = checkpoints.metric;
    this._note(JSON.stringify([checkpoints, status]));
  }

  protected _draw({ checkpoints, total, best, registered, models }: ICheckpointsAnswer): void {
    const trans = this._trans;
    this._models = models;
    this._box.replaceChildren();
    this._lines.replaceChildren();
    if (checkpoints.length === 0) {
      setText(this._said, trans.__('Nothing was saved yet.'));
      return;
    }
    const more = total - checkpoints.length;
    setText(this._said, more > 0 ? trans._n('%1 older one', '%1 older ones', more) : '');
    const first = checkpoints.find(one => one.uuid === best);
    const newest = first ?? checkpoints.find(one => one.state === 'COMPLETED');
    if (newest !== undefined) {
      this._drawLines(newest, first !== undefined);
    }
    const head = [
      ...[trans.__('Steps'), trans.__('Trial'), this._metric, trans.__('Size')],
      ...[trans.__('State'), trans.__('Saved'), trans.__('Model'), trans.__('Path')]
    ];
    this._box.append(
      h(
        'table.det-table',
        {},
        h('thead', {}, h('tr', {}, ...head.map(text => h('th', { scope: 'col' }, text)))),
        h(
          'tbody',
          {},
          ...checkpoints.map(one => this._row(one, one.uuid === best, registered[one.uuid] ?? []))
        )
      )
    );
  }

  /** Show the code that loads a checkpoint. */
  private _drawLines(one: ICheckpointView, isBest: boolean): void {
    const trans = this._trans;
    const code = h(
      'pre.det-code-lines',
      { tabindex: 0 },
      'from det_jupyter import load_checkpoint\n\n' +
        `trained = load_checkpoint(${JSON.stringify(one.path)})`
    );
    const words = isBest
      ? trans.__('To load the best one, at step %1:', one.steps_completed)
      : trans.__('To load the one at step %1:', one.steps_completed);
    const copy = copyButton(trans, trans.__('Copy the lines'), code);
    this._lines.append(h('div.det-line', {}, h('span', {}, words), copy), code);
  }

  private _row(one: ICheckpointView, isBest: boolean, versions: string[]): HTMLElement {
    const trans = this._trans;
    const isKept = one.state === 'COMPLETED';
    const isPart = one.state === 'PARTIALLY_DELETED';
    const gone = isPart ? trans.__('deleted in part') : trans.__('deleted');
    const path = h('code.det-path', { title: one.path }, h('bdi', {}, one.path));
    const metric = one.searcher_metric === null ? '–' : formatNumber(one.searcher_metric);
    const named = trans.__('Copy the path of the checkpoint at step %1', one.steps_completed);
    const cells = [
      h('td.det-number', {}, String(one.trial_id)),
      h('td.det-number', {}, isBest ? h('b', {}, `${metric} ★ ${trans.__('best')}`) : metric),
      h('td.det-number', {}, formatSize(one.size_bytes)),
      h('td', {}, isKept ? trans.__('kept') : gone),
      h('td', {}, new Date(one.created_at * 1000).toLocaleString()),
      h(
        'td',
        {},
        h(
          'span.det-labels',
          {},
          ...versions.map(version => h('span.det-label', {}, version)),
          isKept ? smallButton(trans.__('Register…'), () => this._askModel(one)) : null
        )
      ),
      isKept || isPart
        ? h('td', {}, h('span.det-path-cell', {}, copyButton(trans, named, path), path))
        : h('td', {}, '–')
    ];
    const steps = h('th.det-number', { scope: 'row' }, String(one.steps_completed));
    return h('tr', { 'data-kept': String(isKept) }, steps, ...cells);
  }

  /** Ask of which model a checkpoint is to be a version. */
  private _askModel({ uuid, steps_completed: steps }: ICheckpointView): void {
    const trans = this._trans;
    const id = `det-models-${uuid}`;
    const name = h('input.det-select', {
      required: true,
      list: id,
      placeholder: trans.__('model'),
      'aria-label': trans.__('Name of the model'),
      value: this._models.length === 1 ? (this._models[0] ?? '') : ''
    });
    const form = h(
      'form.det-line',
      {},
      h('span', {}, trans.__('Register the checkpoint at step %1 as a version of', steps)),
      name,
      h('datalist', { id }, ...this._models.map(value => h('option', { value }))),
      h('button.det-button.det-mod-small', { type: 'submit' }, trans.__('Register')),
      smallButton(trans.__('Cancel'), () => this._form.replaceChildren())
    );
    form.addEventListener('submit', event => {
      event.preventDefault();
      void this._register(uuid, name.value.trim());
    });
    this._form.replaceChildren(form);
    name.focus();
  }

  private async _register(uuid: string, model: string): Promise<void> {
    const trans = this._trans;
    try {
      const { number } = await this._send<IRegisteredAnswer>('register', { uuid, model });
      const said = trans.__('Registered as version %1 of model %2.', number, model);
      this._form.replaceChildren(h('p.det-quiet', { role: 'status' }, said));
      this._askAgain();
    } catch (error) {
      const said = error instanceof Error ? error.message : String(error);
      this._form.querySelector('[role=alert]')?.remove();
      this._form.append(h('p', { role: 'alert' }, said));
    }
  }

  private readonly _trans: ITrans;
  private readonly _send: Ask;
  private readonly _form = h('div.det-register');
  private _models: string[] = [];
  private readonly _lines = h('div.det-load');
  private readonly _box = h('div.det-table-box', { tabindex: 0, role: 'region' });
  private _metric = '';
}
