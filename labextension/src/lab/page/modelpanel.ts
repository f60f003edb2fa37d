/** The page of a model of the registry, in the main area. */
import { Dialog, InputDialog, Notification, showDialog } from '@jupyterlab/apputils';

import type { IModelState, IVersionLine } from '../../model/state.js';
import { Commands, type IDocuments, type IFollowed } from '../tokens.js';
import type { ModelView } from './modelview.js';
import { modelIcon } from './pageicons.js';
import { Panel, type Drawing, type IPanelOptions } from './pagepanel.js';

export class ModelPanel extends Panel {
  constructor(
    options: IPanelOptions,
    readonly modelId: number
  ) {
    const { trans } = options.shared;
    super(options, trans.__('Loading the model…'));
    this.addClass('jp-DetModelPage');
    this.title.icon = modelIcon;
    this.title.label = trans.__('Model');
    this._opened = this._open();
  }

  override dispose(): void {
    if (!this.isDisposed) {
      this._followed?.dispose();
      this._view?.dispose();
      super.dispose();
    }
  }

  /** Resolves when it follows the model, or has failed to. */
  get opened(): Promise<void> {
    return this._opened;
  }

  protected override _onLink(): void {
    this._draw();
  }

  private async _open(): Promise<void> {
    const drawing = await this._load();
    if (drawing !== null) {
      this._followed = this._options.shared.socket.follow(
        'model',
        { id: this.modelId },
        state => this._onState(drawing, state),
        sentence => this._say(sentence)
      );
    }
  }

  private _onState(drawing: Drawing, state: IModelState): void {
    if (this._view === undefined) {
      const { commands, shared } = this._options;
      this._view = new drawing.ModelView(shared.trans, {
        openExperiment: id => {
          void commands.execute(Commands.openExperiment, { experiment_id: id });
        },
        addAlias: version => void this._addAlias(version),
        removeAlias: alias => void this._setAlias(alias, null),
        remove: version => void this._remove(version)
      });
      this._host.append(this._view.node);
    }
    this._state = state;
    this.title.label = state.name;
    this.title.caption = this._options.shared.trans.__('Model %1', state.name);
    this._say('');
    this._draw();
  }

  private _draw(): void {
    if (this._state !== undefined) {
      const { state, mayWrite } = this._options.shared.link;
      this._view?.update(this._state, state === 'up' && mayWrite);
    }
  }

  private async _addAlias({ number }: IVersionLine): Promise<void> {
    const { trans } = this._options.shared;
    const { button, value } = await InputDialog.getText({
      title: trans.__('Alias of version %1', number),
      label: trans.__('Such as production; another version that has it loses it.'),
      okLabel: trans.__('Give'),
      cancelLabel: trans.__('Cancel')
    });
    if (button.accept && value) {
      await this._setAlias(value.trim(), number);
    }
  }

  private _setAlias(alias: string, number: number | null): Promise<void> {
    return this._post('aliases', { alias, number });
  }

  private async _remove({ number }: IVersionLine): Promise<void> {
    const { trans } = this._options.shared;
    const answer = await showDialog({
      title: trans.__('Delete version %1?', number),
      body: trans.__('Its checkpoint stays, and is not kept for it any more.'),
      buttons: [
        Dialog.cancelButton({ label: trans.__('Cancel') }),
        Dialog.warnButton({ label: trans.__('Delete') })
      ]
    });
    if (answer.button.accept) {
      await this._post(`versions/${number}/delete`, {});
    }
  }

  private async _post(path: string, body: object): Promise<void> {
    const name = encodeURIComponent(this._state?.name ?? '');
    try {
      await this._options.shared.api.post(`api/models/${name}/${path}`, body);
    } catch (error) {
      Notification.error(error instanceof Error ? error.message : String(error));
    }
  }

  private readonly _opened: Promise<void>;
  private _followed: IFollowed<IDocuments['model']['args']> | undefined;
  private _view: ModelView | undefined;
  private _state: IModelState | undefined;
}
