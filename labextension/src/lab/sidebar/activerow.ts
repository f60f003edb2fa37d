/** A row of an experiment that runs, waits or is paused. */
import { h, plain, rebuilder, setAttribute, setHidden, setText } from '../../dom/dom.js';
import { icon } from '../../dom/icons.js';
import { formatNumber, formatPercent } from '../../model/format.js';
import type { IAction, IExperimentRow, IRemedyButton } from '../../model/state.js';
import type { ITrans } from '../../model/trans.js';
import { EXPERIMENT_ATTRIBUTE } from '../tokens.js';
import type { IOperations } from './operations.js';
import type { IRowView } from './list.js';
import {
  Bar,
  ChangingIcon,
  iconButton,
  nameButton,
  rowLabel,
  setCut,
  setCutProse,
  slotsText,
  textButton
} from './rowparts.js';

/** Heights in pixels; the same in the style sheet. */
const HEAD = 40;
const PROGRESS = 16;
const LINE = 16; // pixels of a line of text
const MOST_LINES = 6;
const MARGIN = 36; // beside a text
const LETTER = 6.2; // the mean width of a letter
const REMEDY = 36;
const PADDING = 8;
/** Further ones are on the experiment's page. */
const MOST_REMEDIES = 2;

export function activeHeight(line: IExperimentRow, width: number): number {
  const said = sentencesOf(line);
  const wait = LINE * linesOf(said, width) + (said === '' ? 0 : 2);
  const progress = hasProgress(line) ? PROGRESS : 0;
  return PADDING + HEAD + progress + wait + REMEDY * remediesOf(line).length;
}

/** Its alarm and the reason why it waits. */
function sentencesOf({ alarm, wait }: IExperimentRow): string {
  return [alarm, wait].filter(Boolean).join('; ');
}

/** The estimated number of lines of a sentence, before it is drawn. */
function linesOf(sentence: string, width: number): number {
  const letters = Math.max(10, (width - MARGIN) / LETTER);
  return Math.min(MOST_LINES, Math.ceil(sentence.length / letters));
}

/** The remedies that a button carries out. */
function remediesOf({ wait, remedies }: IExperimentRow): IRemedyButton[] {
  return wait === '' ? [] : remedies.filter(({ button }) => button).slice(0, MOST_REMEDIES);
}

function hasProgress({ progress, wait }: IExperimentRow): boolean {
  return progress > 0 || wait === '';
}

export class ActiveRow implements IRowView<IExperimentRow> {
  readonly node: HTMLElement;

  constructor(
    private readonly _trans: ITrans,
    private readonly _operations: IOperations,
    private readonly _mayWrite: () => boolean
  ) {
    this._progress = new Bar('progressbar', _trans.__('Progress'));
    const order = (verb: 'first' | 'kill'): Promise<void> => this._order(verb);
    this._first = iconButton(icon('pause'), () => order('first'));
    this._kill = iconButton(icon('kill'), () => order('kill'));
    const head = h(
      'div.det-row-line',
      {},
      this._shape.node,
      this._name,
      h('span.det-row-buttons', {}, this._first, this._kill)
    );
    const said = h('div.det-row-line.det-row-quiet', {}, this._word, this._metric);
    const bar = h('div.det-row-progress', {}, this._progress.node, this._percent);
    this._bar = bar;
    this.node = h('div.jp-DetExperimentRow.det-row.det-mod-active', { role: 'row' });
    this.node.append(
      h('div.det-row-main', { role: 'gridcell' }, head, said, bar, this._sentence),
      this._remedies
    );
  }

  update(line: IExperimentRow): void {
    const mayWrite = this._mayWrite();
    if (line === this._line && mayWrite === this._couldWrite) {
      return;
    }
    this._line = line;
    this._couldWrite = mayWrite;
    setAttribute(this.node, 'data-experiment-id', line.id);
    setAttribute(this.node, EXPERIMENT_ATTRIBUTE, line.id);
    setAttribute(this.node, 'data-status', line.status);
    this._shape.set(line.status);
    setCut(this._name, line.name, `${line.name} (#${line.id})\n${line.description}`.trim());
    this._drawFacts(line);
    this._drawActions(line.actions, mayWrite);
    setAttribute(this.node, 'data-alarm', line.alarm === '' ? null : 'true');
    const said = sentencesOf(line);
    setCutProse(this._sentence, said);
    setHidden(this._sentence, said === '');
    this._drawRemedies({ remedies: remediesOf(line), mayWrite });
  }

  private _drawFacts(line: IExperimentRow): void {
    const { _trans: trans } = this;
    const facts = [
      `#${line.id}`,
      line.status_word,
      line.num_slots > 0 ? slotsText(line.num_slots, trans) : '',
      line.num_trials > 1 ? trans._n('%1 trial', '%1 trials', line.num_trials) : ''
    ].filter(Boolean);
    setCut(this._word, facts.join(' · '));
    const best = line.best_metric === null ? '' : formatNumber(line.best_metric);
    const metric = best === '' ? '' : `${line.metric} ${best}`;
    setText(this._metricName, best === '' ? '' : line.metric);
    setText(this._best, best);
    const better = line.smaller_is_better
      ? trans.__('smaller is better')
      : trans.__('larger is better');
    setAttribute(
      this._metric,
      'title',
      metric === '' ? '' : trans.__('Best %1 (%2)', metric, better) || null
    );
    setHidden(this._bar, !hasProgress(line));
    this._progress.set(line.progress);
    setText(this._percent, formatPercent(line.progress));
    const words = [
      line.name,
      ...facts,
      formatPercent(line.progress),
      metric,
      plain(sentencesOf(line))
    ];
    const label = rowLabel(words);
    setAttribute(this.node, 'aria-label', label);
  }

  /** The first button pauses or activates, as only one of both is possible. */
  private _drawActions(actions: readonly IAction[], mayWrite: boolean): void {
    const find = (verb: string): IAction | undefined => actions.find(one => one.verb === verb);
    const activate = find('activate');
    const first = activate?.enabled ? activate : find('pause');
    this._show(this._first, first, mayWrite);
    this._show(this._kill, find('kill'), mayWrite);
  }

  private _show(button: HTMLElement, action: IAction | undefined, mayWrite: boolean): void {
    setHidden(button, action === undefined);
    if (action !== undefined) {
      const why = mayWrite ? action.why : this._trans.__('You may only look.');
      nameButton(button, action.label, why);
      setAttribute(button, 'aria-disabled', action.enabled && mayWrite ? null : 'true');
      if (button.dataset.verb !== action.verb) {
        button.dataset.verb = action.verb;
        button.replaceChildren(icon(action.verb));
      }
    }
  }

  private async _order(place: 'first' | 'kill'): Promise<void> {
    const verb = (place === 'first' ? this._first : this._kill).dataset.verb;
    const line = this._line;
    if (line !== undefined && (verb === 'pause' || verb === 'activate' || verb === 'kill')) {
      await this._operations.change(line.id, verb);
    }
  }

  private _remedy(remedy: IRemedyButton, mayWrite: boolean): HTMLElement {
    const button = textButton(
      remedy.button,
      async () => {
        if (this._line !== undefined) {
          await this._operations.carryOut(this._line.id, remedy);
        }
      },
      -1
    );
    setAttribute(button, 'aria-disabled', mayWrite ? null : 'true');
    setAttribute(button, 'title', remedy.command);
    setAttribute(button, 'aria-description', remedy.sentence);
    return h(
      'div.det-row-remedy',
      {},
      button,
      h('span', { title: remedy.sentence }, remedy.sentence)
    );
  }

  private readonly _shape = new ChangingIcon();
  private readonly _name = h('span.det-row-name');
  private readonly _first: HTMLButtonElement;
  private readonly _kill: HTMLButtonElement;
  private readonly _word = h('span.det-row-word');
  private readonly _metricName = h('span');
  private readonly _best = h('b');
  private readonly _metric = h('span.det-row-metric', {}, this._metricName, this._best);
  private readonly _bar: HTMLElement;
  private readonly _progress: Bar;
  private readonly _percent = h('span.det-row-percent');
  private readonly _sentence = h('p.det-row-wait');
  private readonly _remedies = h('div.det-row-remedies', { role: 'gridcell' });
  private readonly _drawRemedies = rebuilder(
    this._remedies,
    ({ remedies, mayWrite }: { remedies: IRemedyButton[]; mayWrite: boolean }) =>
      remedies.map(remedy => this._remedy(remedy, mayWrite))
  );
  private _line: IExperimentRow | undefined;
  private _couldWrite: boolean | undefined;
}
