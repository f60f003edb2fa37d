/** A tab with the stacks of a trial's ranks, fetched on request. */
import { Dialog, MainAreaWidget, showDialog } from '@jupyterlab/apputils';
import { Widget } from '@lumino/widgets';

import { copyButton } from '../../dom/copy.js';
import { h, setHidden, setText } from '../../dom/dom.js';
import { icon } from '../../dom/icons.js';
import { formatClock } from '../../model/format.js';
import type { IDetJupyter } from '../tokens.js';
import { stacksIcon } from './runningicons.js';
import type { IPlace } from './ranktarget.js';
import { groupsOf, innermost, nameOf, shortened, textOf, type IGroup } from './stacks.js';
import type { IStacksAnswer } from '../../model/answers.js';
import type { ITrialView } from '../../model/answers.js';

type Det = Pick<IDetJupyter, 'api' | 'socket' | 'trans'>;

export class StackView extends Widget {
  constructor(
    private readonly _det: Det,
    private _place: IPlace
  ) {
    super();
    const { trans } = _det;
    this.addClass('jp-DetStacks');
    this._again = this._button(trans.__('Refresh'), () => void this.refresh());
    this._all = this._button(trans.__('All Ranks'), () => this.show_({ trial_id: this.trialId }));
    this._copy = copyButton(trans, trans.__('Copy all stacks'), this._groups, () =>
      textOf(this._stacks, trans)
    );
    this._copy.className = BUTTON;
    this.node.append(
      h('div.det-Stacks-bar', {}, this._again, this._copy, this._all, this._said),
      this._groups
    );
    this.node.tabIndex = -1;
  }

  get trialId(): number {
    return this._place.trial_id;
  }

  /** Show another rank of the trial, or all. */
  show_(place: IPlace): void {
    this._place = place;
    void this.refresh();
  }

  /** Fetch the stacks; resolves when they are shown. */
  async refresh(): Promise<void> {
    const { trans } = this._det;
    const asked = ++this._asked;
    this._again.disabled = true;
    setHidden(this._all, this._place.rank === undefined);
    setText(this._said, trans.__('Asking…'));
    const began = Date.now();
    try {
      const { stacks } = await this._ask();
      if (this.isDisposed || asked !== this._asked) {
        return;
      }
      this._stacks = stacks;
      this._draw();
      const seconds = ((Date.now() - began) / 1000).toFixed(1);
      setText(
        this._said,
        trans.__('As of %1, asked in %2 s', formatClock(Date.now() / 1000), seconds)
      );
    } catch (error) {
      if (!this.isDisposed && asked === this._asked) {
        this._fail((error as Error).message);
      }
    } finally {
      if (asked === this._asked) {
        this._again.disabled = false;
        setHidden(this._copy, this._stacks.length === 0);
      }
    }
  }

  protected override onActivateRequest(): void {
    this.node.focus();
  }

  private async _ask(): Promise<IStacksAnswer> {
    const { api, socket } = this._det;
    this._experimentId ??= (await api.get<ITrialView>(`api/trials/${this.trialId}`)).experiment_id;
    return socket.ask<IStacksAnswer>(this._experimentId, 'stacks', { ...this._place });
  }

  /** Shows the reason and keeps the last stacks, which are useful after a trial has ended. */
  private _fail(why: string): void {
    setText(this._said, '');
    this._groups.querySelector('.det-Stacks-problem')?.remove();
    this._groups.prepend(h('p.det-Stacks-problem', { role: 'alert' }, icon('occupied'), why));
  }

  private _draw(): void {
    const groups = groupsOf(this._stacks);
    this._groups.replaceChildren(...groups.map(group => this._group(group)));
  }

  private _group(group: IGroup): HTMLElement {
    const { trans } = this._det;
    const name = nameOf(group, this._stacks.length, trans);
    const where = group.isSilent ? '' : innermost(group.text);
    const about = group.isSilent
      ? trans.__('no answer')
      : where === ''
        ? ''
        : trans.__('in %1', where);
    const heading = h(
      'h3',
      {},
      group.isSilent ? icon('occupied') : null,
      h('span', {}, name),
      h('span.det-Stacks-where', {}, about)
    );
    const text = group.isSilent
      ? h('p', {}, group.text)
      : h(
          'pre',
          { tabindex: 0, 'aria-label': trans.__('Stack of %1', name) },
          shortened(group.text)
        );
    const section = h('section.det-Stacks-group', { 'aria-label': name }, heading, text);
    section.classList.toggle('jp-mod-silent', group.isSilent);
    return section;
  }

  private _button(label: string, onClick: () => void): HTMLButtonElement {
    const button = h('button', { type: 'button', class: BUTTON }, label);
    button.addEventListener('click', onClick);
    return button;
  }

  private readonly _groups = h('div.det-Stacks-groups');
  private readonly _said = h('span.det-Stacks-said', { role: 'status' });
  private readonly _again: HTMLButtonElement;
  private readonly _all: HTMLButtonElement;
  private readonly _copy: HTMLButtonElement;
  private _stacks: IStacksAnswer['stacks'] = [];
  private _experimentId: number | undefined;
  private _asked = 0;
}

/** The tab of a trial's stacks. */
export function stackTab(det: Det, place: IPlace): MainAreaWidget<StackView> {
  const content = new StackView(det, place);
  const tab = new MainAreaWidget({ content });
  tab.toolbar.hide();
  tab.id = `det-stacks-${place.trial_id}`;
  tab.title.label = det.trans.__('Stacks of trial %1', place.trial_id);
  tab.title.icon = stacksIcon;
  tab.title.closable = true;
  return tab;
}

/** The stacks in a dialog, where there are no tabs. */
export async function showStacks(det: Det, place: IPlace): Promise<null> {
  const body = new StackView(det, place);
  body.show_(place);
  await showDialog({
    title: det.trans.__('Stacks of trial %1', place.trial_id),
    body,
    buttons: [Dialog.okButton({ label: det.trans.__('Close') })]
  });
  return null;
}

const BUTTON = 'jp-mod-styled jp-mod-minimal det-Stacks-button';
